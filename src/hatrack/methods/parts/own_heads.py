"""The loss of a batch that mixes tasks: every sample is classified by its own task's head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class OwnHeads:
    """The heads of several tasks side by side; a sample sees the logits of its own task only."""

    def __init__(self, heads: Sequence[nn.Linear]) -> None:
        self._heads = list(heads)
        sizes = torch.tensor([head.out_features for head in self._heads])
        tasks = torch.arange(len(self._heads))
        device = self._heads[0].weight.device
        self._offset = (sizes.cumsum(0) - sizes).to(device)
        self._others = (torch.repeat_interleave(tasks, sizes)[None, :] != tasks[:, None]).to(device)

    def parameters(self) -> dict[str, Tensor]:
        """Return the parameters of all heads by name."""
        return {f"heads/{t}/{name}": p for t, head in enumerate(self._heads) for name, p in head.named_parameters()}

    def loss(self, features: Tensor, y: Tensor, source: Tensor) -> Tensor:
        """Return the mean cross-entropy; `source` is the task of each sample."""
        logits = torch.cat([head(features) for head in self._heads], dim=1)
        logits = logits.masked_fill(self._others[source], -torch.inf)
        return cross_entropy(logits, y + self._offset[source])
