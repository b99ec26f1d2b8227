"""The loss where every sample is told from the classes of all tasks so far: class-incremental training."""

from __future__ import annotations

import torch
from torch import Tensor

from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.methods.parts.own_heads import OwnHeads
from hatrack.nets.model import Model
from hatrack.targets import Classification


class AllHeads(OwnHeads):
    """The heads of the tasks so far as one: −log softmax over the logits of all of them, side by side."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        odd = next((target for target in self._targets if not target.plain), None)
        if odd is not None:
            raise HatrackError(
                f"heads='all' sets the classes of all tasks side by side, under one plain cross-entropy, and a task "
                f"has the target {odd.name} or a loss of its own; choose heads='own'."
            )
        self._joint = Classification(sum(head.out_features for head in self._heads))

    def loss(self, features: Tensor, batch: Batch, task: int) -> Tensor:
        if batch.y.ndim != 1:
            raise HatrackError(
                "heads='all' takes one label a sample, and got a row of probabilities; leave mixup and soft labels "
                "out, or choose heads='own'."
            )
        source = torch.full_like(batch.y, task) if batch.source is None else batch.source
        logits = torch.cat([head(features) for head in self._heads], dim=1)
        return self._joint.trained(logits, batch.y + self._offset[source], batch.weights)

    def answers(self, features: Tensor) -> list[Tensor]:
        own = super().answers(features)
        return [torch.cat(own[: task + 1], dim=1) for task in range(len(own))]
