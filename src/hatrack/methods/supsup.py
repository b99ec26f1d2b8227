"""SupSup, supermasks in superposition. Wortsman et al. 2020; task identity given (their scenario GG).

    weights  random and never trained: W = ±√(2/fan_in), the sign of every initial weight kept (signed Kaiming constant)
    mask     M = 1 for the share `keep` of a layer's entries with the largest |score|, 0 elsewhere
    forward  W ⊙ M; backward straight through the mask: dL/d|score| = dL/dM
    scores   fresh for each task, U(±1/√fan_in); what a finished task keeps is its mask, at one bit a weight

Trained with Adam at 0.001 as in the paper, whose grid for `keep` ends at 32 %. Every parameter with two axes or more
is masked; biases stay as they are.

Deviations. The head is a plain linear layer of the task's own, trained, as for all methods here (the paper masks a
random one). Batch norms are one a task with scale and shift trained (the paper: one a task, without either). The same
share is kept in every layer (the paper's CIFAR runs spread it by layer size).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.masks.widen import Places
from hatrack.methods.parts.subnetworks import Subnetworks


@dataclass
class SupSup(Subnetworks):
    """Find a subnetwork of a fixed random network for every task."""

    name: ClassVar[str] = "supsup"
    source: ClassVar[str] = "Wortsman et al. 2020"
    summary: ClassVar[str] = "learned masks over fixed random weights, one bit a weight and task"
    stores: ClassVar[str] = "P/8 bytes: a bit a weight"

    @torch.no_grad()
    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        if task == 0:  # done again when an interrupted first task is taken up: it changes nothing then
            for weight in self.masks.masked.values():
                weight.copy_(signed(weight))
        self.score(self.drawn(generator))

    def freed(self, drawn: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """No weight was ever trained."""
        initial = self.model.initial
        return {name: signed(initial[name]) if name in self.masks.masked else initial[name] for name in drawn}

    @torch.no_grad()
    def grown(self, places: Places, generator: torch.Generator) -> None:
        for name, weight in self.masks.masked.items():
            old = places.taken(name, weight)
            weight.copy_(places.spread(name, old, signed(weight)))

    def trainable(self) -> dict[str, Tensor]:
        fixed = {f"net/{name}" for name in self.shared()}
        return {name: tensor for name, tensor in super().trainable().items() if name not in fixed}


def signed(weight: Tensor) -> Tensor:
    """±√(2/fan_in), by the sign of every weight."""
    size: float = (2 / weight[0].numel()) ** 0.5
    return torch.where(weight >= 0, size, -size)
