"""The patience schedule: the learning rate is divided when the validation loss stalls, until it is too small."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass
class Patience:
    """State of the schedule within one phase of a task; every task starts with a new one.

    After `patience` epochs in a row without a strictly lower validation loss, lr ← lr/factor and the count starts
    again; training is over when lr < minimum.
    """

    lr: float
    factor: float
    patience: int
    minimum: float
    best: float = inf
    stalled: int = 0

    @property
    def over(self) -> bool:
        """Whether the learning rate has become too small to go on."""
        return self.lr < self.minimum

    def record(self, loss: float) -> bool:
        """Take an epoch's validation loss; return whether it is the best so far."""
        if loss < self.best:
            self.best, self.stalled = loss, 0
            return True
        self.stalled += 1
        if self.stalled >= self.patience:
            self.drop()
        return False

    def drop(self) -> None:
        """Divide the learning rate and start counting again."""
        self.lr /= self.factor
        self.stalled = 0
