"""What methods share that weaken gradients entry by entry: g ← (1 − amount)·g, amounts from finished tasks.

SPG, SPG-FI and HPG, and the Fisher masks: they differ in where the amounts come from. The forward pass is that of the
plain network, so old tasks may still drift through the entries that move. Batch norms are shared and masked like any
other parameter unless asked otherwise: nothing is kept for single tasks but their heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.masks.lock import Lock
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept
from hatrack.methods.parts.importance import larger
from hatrack.methods.parts.norms import NORM_HELP, NORMS


@dataclass
class GradientMask(Method):
    """A method that ends every task by saying how much of each entry's update is to be held back from now on."""

    settles: ClassVar[bool] = True

    norm: str = hyper("shared", NORM_HELP, choices=NORMS)

    importance: dict[str, Tensor] = kept("importance", bits=True)  # of all finished tasks together, 0 to 1

    def amounts(self) -> dict[str, Tensor]:
        """Return how much of every update is held back."""
        return self.importance

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.lock = Lock(self.shared(), self.amounts()) if self.importance else None

    def accumulate(self, new: dict[str, Tensor]) -> None:
        """Take in the importance of every shared entry to the task just learned."""
        self.importance = larger(new, self.importance) if self.importance else new

    def occupied(self) -> Mapping[str, Tensor]:
        return self.amounts() if self.importance else {n: torch.zeros_like(p) for n, p in self.shared().items()}
