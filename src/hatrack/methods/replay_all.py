"""B1, replay of a share of all old data. Konishi et al. 2023 (SPG, appendix).

    at task t the network goes on from task t−1, on task t's samples and a share r of every old task's at once

Every sample is classified by its own task's head, and counts the same. Unlike `joint` the network is not started
again. r = 1 replays everything; the paper also has 0.5 and 0.1. Which samples is decided when a task ends. Validated on
task t's validation samples and the same share of the old tasks'; the paper does not say on which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.own_heads import OwnHeads


@dataclass
class ReplayAll(Method):
    """Go on training with old samples mixed in."""

    name: ClassVar[str] = "replay-all"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Konishi et al. 2023 (B1)"
    summary: ClassVar[str] = "goes on with a share of all old tasks' samples mixed in"
    stores: ClassVar[str] = "a share of its training data"
    needs_old_data: ClassVar[bool] = True

    share: float = hyper(
        1.0, "r: share of every old task's samples that is replayed", low=0.0, high=1.0, search=(0.1, 0.5, 1.0)
    )

    def remembered(self) -> float:
        return self.share

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._heads = OwnHeads(self.model)

    def trainable(self) -> dict[str, Tensor]:
        return {**{f"net/{n}": p for n, p in self.model.parameters().items()}, **self._heads.parameters()}

    def loss(self, batch: Batch) -> Tensor:
        return self._heads.loss(self.model.features(batch.x, self.task), batch, self.task)
