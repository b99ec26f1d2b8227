"""EWC, elastic weight consolidation. Kirkpatrick et al. 2017, "Overcoming catastrophic forgetting in neural
networks"; as run by Serrà et al. 2018.

    penalty  λ·½·Σ F·(θ − θ*)²
    Fisher   F_t = Σ_b |b|·(dL_b/dθ)²/N over mini-batches b of 20 training samples, L_b their mean cross-entropy
    mean     F ← (F_t + t·F)/(t + 1), t the number of earlier tasks; one anchor θ*, the last model
    each     F ← F + F_t, θ* ← (F·θ* + F_t·θ_t)/(F + F_t) entry by entry

`merge="mean"`, the default, is HAT's baseline, whose λ is used here. `merge="each"` is Kirkpatrick's own: one penalty
for every old task around that task's own weights θ_t. Their sum is again one parabola, with the sum of the Fishers and
the anchor above (up to a constant), so that it needs no more memory.

Labels are the true ones (the empirical Fisher information), and F is computed with dropout off and running
statistics fixed: the published code leaves dropout on. How the penalty acts where λ·F is huge: see parts/anchor.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import part
from hatrack.methods.parts.fisher import fisher_diagonal

MERGES = MEAN, EACH = "mean", "each"
MERGE_HELP = "penalties of old tasks: their mean around the last model, or each around its own task's"


@dataclass
class EWC(Method):
    """Hold weights by the Fisher information of all tasks so far."""

    name: ClassVar[str] = "ewc"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Kirkpatrick et al. 2017"
    summary: ClassVar[str] = "weights are held by their Fisher information over old tasks"
    stores: ClassVar[str] = "8·P bytes in all: Fisher and anchor"
    settles: ClassVar[bool] = True

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(5000.0, "λ: weight of the penalty", low=0.0, search=(500.0, 50_000.0, "log"))
    merge: str = hyper(MEAN, MERGE_HELP, choices=MERGES, search=MERGES)

    anchor: Anchor = part(Anchor)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, self.lam)

    def end_task(self, feed: Feed) -> None:
        self.model.net.eval()
        consolidate(self.anchor, self.task, self.shared(), fisher_diagonal(self.loss, self.shared(), feed), self.merge)


def consolidate(
    anchor: Anchor, task: int, parameters: Mapping[str, Tensor], new: Mapping[str, Tensor], merge: str
) -> None:
    """Add a task's Fisher to what the tasks before it left, and set the anchor."""
    old, before = anchor.weights, anchor.anchors
    if task == 0:
        anchor.hold(parameters, new)
    elif merge == MEAN:
        anchor.hold(parameters, {name: (f + task * old[name]) / (task + 1) for name, f in new.items()})
    else:
        anchor.hold(parameters, {name: old[name] + f for name, f in new.items()})
        for name, f in new.items():
            share = torch.where(anchor.weights[name] > 0, f / anchor.weights[name], 1.0)
            anchor.anchors[name] = torch.lerp(before[name], anchor.anchors[name], share)
