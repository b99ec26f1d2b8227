"""WSN, winning subnetworks. Kang et al. 2022, "Forget-free continual learning with winning subnetworks".

    mask     M = 1 for the share `keep` of a layer's entries with the largest |score|, 0 elsewhere
    forward  W ⊙ M; backward straight through the mask to the scores, dL/d|score| = dL/dM, and to the weights
    lock     weights that an earlier task uses are frozen, and may be used again; the others are trained
    kept     the masks, at one bit a weight

Scores go on from task to task: a mask starts as the last one ended. Adam at 0.001, lowered to 1e-6, and half of every
layer as in the paper, whose grid for `keep` goes down to 3 %.

Deviations. Masks are packed, not entropy-coded. Biases are trained with the first task and fixed afterwards; batch
norms are one a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.masks.lock import Lock
from hatrack.masks.widen import Places
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept
from hatrack.methods.parts.growing import Growing
from hatrack.methods.parts.subnetworks import Subnetworks


@dataclass
class WSN(Growing, Subnetworks):
    """Find a subnetwork for every task, among the frozen weights of old tasks and free ones, which it trains."""

    name: ClassVar[str] = "wsn"
    source: ClassVar[str] = "Kang et al. 2022"
    summary: ClassVar[str] = "the best scored weights are a task's; those used stay as they are"
    stores: ClassVar[str] = "P/8 bytes: a bit a weight; 4·P in all: scores"
    masks_grow: ClassVar[bool] = True
    updatable: ClassVar[bool] = True
    trains_weights: ClassVar[bool] = True

    lr_min: float = hyper(1e-6, "training on a task stops when the learning rate falls below", low=0.0)
    keep: float = hyper(0.5, "share of every layer's weights in a mask", low=0.0, high=1.0, search=(0.03, 0.7, "log"))

    last: dict[str, Tensor] = kept("scores")

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.score(self.last or self.drawn(generator))
        union = self.masks.by_name(self.masks.union(self.model.copies))
        taken = self.masks.in_all(union, task)  # biases after the first task, as a whole
        self.lock = None if self.first else Lock(self.masks.shared, taken)

    def go_on_from(self, task: int) -> None:
        """Scores as they are, those of the task's own weights above all others."""
        for name, mask in self.masks.of(task).items():
            scores = self.scores[name].data
            more = torch.where(scores < 0, -1.0, 1.0) * scores.abs().max()
            scores.add_(torch.where(mask, more, 0.0))

    def release(self, task: int) -> None:
        """Scores go on from task to task, and have all of them in them: the next task draws its own."""
        super().release(task)
        self.last = {}

    def grown(self, places: Places, generator: torch.Generator) -> None:
        """Scores go on; those of new weights are drawn."""
        drawn = self.drawn(generator)
        self.last = {name: places.spread(name, scores, drawn[name]) for name, scores in self.last.items()}

    def end_task(self, feed: Feed) -> None:
        super().end_task(feed)
        self.last = {name: scores.detach().clone() for name, scores in self.scores.items()}
