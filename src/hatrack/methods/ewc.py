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
statistics fixed: the published code leaves dropout on. How the penalty acts where λ·F is huge: see anchored.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.anchored import Anchored
from hatrack.methods.fisher import fisher_diagonal
from hatrack.methods.hyper import hyper


@dataclass
class FisherPenalty(Anchored):
    """What ewc and online-ewc share; they differ in how the Fishers of several tasks are put together."""

    family: ClassVar[str] = "regularisation"
    stores: ClassVar[str] = "8·P bytes in all: Fisher and anchor"

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(5000.0, "λ: weight of the penalty", low=0.0, search=(500.0, 50_000.0, "log"))

    def strength(self) -> float:
        return self.lam

    def end_task(self, feed: Feed) -> None:
        self.model.net.eval()
        self.consolidate(fisher_diagonal(self.loss, self.shared(), feed))

    def consolidate(self, new: Mapping[str, Tensor]) -> None:
        """Add a task's Fisher to what the tasks before it left, and set the anchor."""
        raise NotImplementedError


@dataclass
class EWC(FisherPenalty):
    """Hold weights by the Fisher information of all tasks so far."""

    name: ClassVar[str] = "ewc"
    source: ClassVar[str] = "Kirkpatrick et al. 2017"
    summary: ClassVar[str] = "weights are held by their Fisher information over old tasks"

    merge: str = hyper(
        "mean",
        "penalties of old tasks: their mean around the last model, or each around its own task's",
        choices=("mean", "each"),
        search=("mean", "each"),
    )

    def consolidate(self, new: Mapping[str, Tensor]) -> None:
        t, old, before = self.task, self.weights, self.anchors
        if t == 0:
            self.hold(new)
        elif self.merge == "mean":
            self.hold({name: (f + t * old[name]) / (t + 1) for name, f in new.items()})
        else:
            self.hold({name: old[name] + f for name, f in new.items()})
            for name, f in new.items():
                share = torch.where(self.weights[name] > 0, f / self.weights[name], 1.0)
                self.anchors[name] = torch.lerp(before[name], self.anchors[name], share)
