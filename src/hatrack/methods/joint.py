"""Joint training (also MTL): at task t, a fresh network learns the data of all tasks so far at once.

Every sample is answered by its own task's head, and the loss is the mean over the batch: of classes, the logits of all
heads stand side by side and those of other tasks are masked out. It is validated on all tasks so far,
each sample counting the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.methods.base import Method
from hatrack.methods.parts.own_heads import OwnHeads


@dataclass
class Joint(Method):
    """The upper reference: all data of all tasks so far, from scratch."""

    name: ClassVar[str] = "joint"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Caruana 1997"
    summary: ClassVar[str] = "retrains from scratch on all tasks so far; an upper reference"
    stores: ClassVar[str] = "its training data"
    needs_old_data: ClassVar[bool] = True

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.model.reset()
        for head in self.model.heads[: task + 1]:
            bound = (6 / (head.in_features + head.out_features)) ** 0.5
            with torch.no_grad():
                fresh = torch.empty(head.weight.shape).uniform_(-bound, bound, generator=generator)
                head.weight.copy_(fresh)
                head.bias.zero_()
        self._heads = OwnHeads(self.model)

    def trainable(self) -> dict[str, Tensor]:
        return {**{f"net/{n}": p for n, p in self.model.parameters().items()}, **self._heads.parameters()}

    def loss(self, batch: Batch) -> Tensor:
        return self._heads.loss(self.model.features(batch.x, self.task), batch, self.task)
