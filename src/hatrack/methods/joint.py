"""Joint training (also MTL): at task t, a fresh network learns the data of all tasks so far at once.

Every sample is classified by its own task's head: the logits of all heads stand side by side and those of other
tasks are masked out, so that the loss is the mean cross-entropy over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hatrack.data.feed import Batch, Feed
from hatrack.methods.base import Method


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
        sizes = torch.tensor([head.out_features for head in self.model.heads[: task + 1]])
        owner = torch.repeat_interleave(torch.arange(task + 1), sizes)
        device = self.model.device
        self._offset = (sizes.cumsum(0) - sizes).to(device)
        self._own = (owner[None, :] == torch.arange(task + 1)[:, None]).to(device)

    def trainable(self) -> dict[str, Tensor]:
        heads: dict[str, Tensor] = {
            f"heads/{t}/{name}": p
            for t, head in enumerate(self.model.heads[: self.task + 1])
            for name, p in head.named_parameters()
        }
        return {**{f"net/{n}": p for n, p in self.model.parameters().items()}, **heads}

    def loss(self, batch: Batch) -> Tensor:
        source = batch.source if batch.source is not None else torch.full_like(batch.y, self.task)
        features = self.model.features(batch.x, self.task)
        logits = torch.cat([head(features) for head in self.model.heads[: self.task + 1]], dim=1)
        logits = logits.masked_fill(~self._own[source], -torch.inf)
        return cross_entropy(logits, batch.y + self._offset[source])
