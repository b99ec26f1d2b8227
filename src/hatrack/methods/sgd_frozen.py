"""SGD-F: the network is trained on the first task; afterwards only the new head learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.methods.base import Method


@dataclass
class SGDFrozen(Method):
    """Freeze everything but the heads after the first task."""

    name: ClassVar[str] = "sgd-frozen"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Serrà et al. 2018 (SGD-F)"
    summary: ClassVar[str] = "the network is frozen after the first task; only heads learn"
    stores: ClassVar[str] = "nothing"
    guarantee: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    norms: ClassVar[str] = "frozen"  # nor does it count new data into running statistics

    def trainable(self) -> dict[str, Tensor]:
        everything = super().trainable()
        if self.first:
            return everything
        return {name: tensor for name, tensor in everything.items() if name.startswith("head/")}

    def use(self, task: int) -> Mapping[str, Tensor]:
        return {name: torch.ones_like(p) for name, p in self.model.parameters().items()}

    def occupied(self) -> Mapping[str, Tensor]:
        return self.use(0)
