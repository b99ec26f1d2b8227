"""What methods share that weaken gradients entry by entry: g ← (1 − amount)·g, amounts from finished tasks.

SPG, SPG-FI and HPG, and the Fisher masks: they differ in where the amounts come from. The forward pass is that of the
plain network, so old tasks may still drift through the entries that move. Batch norms are shared and masked like any
other parameter unless asked otherwise: nothing is kept for single tasks but their heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.masks.lock import Lock
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.importance import larger
from hatrack.methods.norms import NORM_HELP, NORMS, private_norms
from hatrack.nets.model import Model


@dataclass
class GradientMask(Method):
    """A method that ends every task by saying how much of each entry's update is to be held back from now on."""

    norm: str = hyper("shared", NORM_HELP, choices=NORMS)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.importance: dict[str, Tensor] = {}  # of all finished tasks together, 0 to 1

    def private(self) -> Mapping[str, Tensor]:
        return private_norms(self.model, self.norm)

    def shared(self) -> dict[str, Tensor]:
        """Return the parameters that tasks share, by name."""
        own = self.model.private[self.task]
        return {name: p for name, p in self.model.parameters().items() if name not in own}

    def amounts(self) -> dict[str, Tensor]:
        """Return how much of every update is held back."""
        return self.importance

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        self.refuse_unfrozen()
        super().begin_task(task, feed, generator)
        self.lock = Lock(self.shared(), self.amounts()) if self.importance else None

    def begin_epoch(self) -> None:
        super().begin_epoch()
        if self.norm == "frozen" and self.task > 0:
            self.model.freeze_statistics()

    def accumulate(self, new: dict[str, Tensor]) -> None:
        """Take in the importance of every shared entry to the task just learned."""
        self.importance = larger(new, self.importance) if self.importance else new
        if self.norm == "task":
            self.model.keep_moved_buffers(self.task)

    def occupied(self) -> Mapping[str, Tensor]:
        return self.amounts() if self.importance else {n: torch.zeros_like(p) for n, p in self.shared().items()}

    def state(self) -> dict[str, Tensor]:
        return super().state() | {f"importance/{name}": value for name, value in self.importance.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_state(state)
        prefix, parameters = "importance/", self.model.parameters()
        stored = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        self.importance = {name: value.to(parameters[name]) for name, value in stored.items()}
