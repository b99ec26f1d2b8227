"""What a phase of a task reached on the validation samples, for methods that decide by it.

The learner shows a method every batch of the validation samples after each epoch (`valid_loss`). `Scores` adds them
up on the device and remembers the figures of the epoch with the lowest loss, which is the one whose weights stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.methods.parts.declared import Part, progress
from hatrack.targets import Classification, Target


@dataclass(init=False, eq=False)
class Scores(Part):
    """Loss and merits of the best epoch so far; `rivals` is how many predictions are compared side by side."""

    sums: Tensor = progress("scores/sums")  # of the epoch just validated: samples, loss, merits
    best: Tensor = progress("scores/best")

    def __init__(self, device: torch.device, rivals: int = 1) -> None:
        super().__init__()
        self.sums = torch.zeros(2 + rivals, device=device)
        self.best = torch.zeros(2 + rivals, device=device)
        self.reset()

    def reset(self) -> None:
        """Forget all: a new phase begins."""
        self.sums.zero_()
        self.best.zero_()

    def start_epoch(self) -> None:
        """Keep the last epoch's figures if they are the best, and make room for the next."""
        self.best.copy_(self._leader())
        self.sums.zero_()

    def add(self, loss: Tensor, target: Target, y: Tensor, *rivals: Tensor) -> None:
        """Count a validation batch: its mean loss, its targets, and the answers of every rival."""
        n = torch.full_like(loss.detach(), len(y))
        merits = [_merit(target, answers.detach(), y).to(n.dtype) for answers in rivals]
        self.sums.add_(torch.stack([n, loss.detach() * n, *merits]).float())

    def _leader(self) -> Tensor:
        """The better of the last epoch and the best before; one without samples or a finite loss never is."""
        lower = self.sums[1] * self.best[0] < self.best[1] * self.sums[0]
        counts = (self.sums[0] > 0) & self.sums[1].isfinite()
        return torch.where(counts & (lower | (self.best[0] == 0)), self.sums, self.best)

    def result(self) -> tuple[float, list[float]] | None:
        """Return the best epoch's mean loss and merits a sample; None when no epoch brought any."""
        samples, loss, *merits = self._leader().tolist()
        return (loss / samples, [m / samples for m in merits]) if samples else None


def _merit(target: Target, answers: Tensor, y: Tensor) -> Tensor:
    """Return how many of a batch's classes are right; of what has no classes, how small its loss is."""
    if isinstance(target, Classification):
        return (answers.argmax(1) == target.strata(y)).sum()
    return -target.trained(answers, y) * len(y)
