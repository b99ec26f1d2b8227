"""Mean-IMM, incremental moment matching. Lee et al. 2017, "Overcoming catastrophic forgetting by incremental moment
matching"; with L2-transfer, as run by Serrà et al. 2018.

    penalty  λ·½·‖θ − θ_old‖² while a task is learned, θ_old the merged weights of the tasks before
    merge    θ ← (θ + t·θ_old)/(t + 1) when it ends, t the number of earlier tasks; the result answers all tasks

Heads are not merged: each task has its own, and a head that only one model has is not to be averaged with anything.
(HAT's baseline averages the new head with its random start.) Running statistics of norms are averaged like weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import kept, part


@dataclass
class IMMMean(Method):
    """Average the networks of all tasks."""

    name: ClassVar[str] = "imm-mean"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Lee et al. 2017"
    summary: ClassVar[str] = "after each task the network becomes the mean over all tasks"
    stores: ClassVar[str] = "4·P bytes in all: the merged weights"
    settles: ClassVar[bool] = True

    lam: float = hyper(1e-4, "λ: weight of the pull to the merged weights", low=0.0, search=(1e-6, 1e-2, "log"))

    statistics: dict[str, Tensor] = kept("statistic")
    anchor: Anchor = part(Anchor)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, self.lam)

    def end_task(self, feed: Feed) -> None:
        merged = self.merged(feed)
        if self.task:
            merged |= {name: self._mean(b, self.statistics[name]) for name, b in self._running().items()}
            tensors = self.model.tensors()
            with torch.no_grad():
                for name, value in merged.items():
                    tensors[name].copy_(value)
        self.anchor.hold(self.shared(), {})
        self.statistics = {name: b.detach().clone() for name, b in self._running().items()}

    def merged(self, feed: Feed) -> dict[str, Tensor]:
        """Return the shared parameters as they are after the merge; the first task has nothing to merge with."""
        return {
            name: self._mean(p.detach(), self.anchor.anchors[name]) for name, p in self.shared().items() if self.task
        }

    def _mean(self, new: Tensor, old: Tensor) -> Tensor:
        """(θ + t·θ_old)/(t + 1)."""
        return torch.lerp(new, old, self.task / (self.task + 1))

    def _running(self) -> dict[str, Tensor]:
        return {name: b for name, b in self.model.buffers().items() if b.is_floating_point()}
