"""The loss of a batch that mixes tasks: every sample is answered by its own task's head."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hatrack.data.feed import Batch
from hatrack.nets.model import Model


class OwnHeads:
    """The heads of the tasks so far; a sample sees its own task's only."""

    def __init__(self, model: Model) -> None:
        self._heads, self._targets = list(model.heads), list(model.targets)
        sizes = torch.tensor([head.out_features for head in self._heads])
        tasks = torch.arange(len(self._heads))
        self._offset = (sizes.cumsum(0) - sizes).to(model.device)
        self._others = (torch.repeat_interleave(tasks, sizes)[None, :] != tasks[:, None]).to(model.device)
        self._plain = all(target.plain for target in self._targets)

    def parameters(self) -> dict[str, Tensor]:
        """Return the parameters of all heads by name."""
        return {f"heads/{t}/{name}": p for t, head in enumerate(self._heads) for name, p in head.named_parameters()}

    def loss(self, features: Tensor, batch: Batch, task: int) -> Tensor:
        """Return the mean loss; samples of a batch that says nothing of sources are of `task`."""
        if batch.source is None:
            return self._targets[task].trained(self._heads[task](features), batch.y, batch.weights)
        if self._plain and batch.weights is None and batch.y.ndim == 1:
            return self._side_by_side(features, batch.y, batch.source)
        losses = []
        for number, (head, target) in enumerate(zip(self._heads, self._targets, strict=True)):
            rows, y, weights = batch.of(number)
            if len(y):
                losses.append(target.trained(head(features[rows]), y, weights) * (len(y) / len(batch.y)))
        return torch.stack(losses).sum()

    def answers(self, features: Tensor) -> list[Tensor]:
        """Return, for each task, what its own samples are answered with: one row a sample."""
        return [head(features).flatten(1) for head in self._heads]

    def _side_by_side(self, features: Tensor, y: Tensor, source: Tensor) -> Tensor:
        """Return the mean cross-entropy in one piece: the logits of other tasks are masked out."""
        logits = torch.cat([head(features) for head in self._heads], dim=1)
        logits = logits.masked_fill(self._others[source], -torch.inf)
        return cross_entropy(logits, y + self._offset[source])
