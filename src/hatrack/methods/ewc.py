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
class EWC(Anchored):
    """Hold weights by the Fisher information of all tasks so far."""

    name: ClassVar[str] = "ewc"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Kirkpatrick et al. 2017"
    summary: ClassVar[str] = "weights are held by their mean Fisher information over old tasks"
    stores: ClassVar[str] = "8·P bytes in all: Fisher and anchor"

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(5000.0, "λ: weight of the penalty", low=0.0, search=(500.0, 50_000.0, "log"))

    merge: str = hyper("mean", "how old tasks' penalties are merged: their mean at the last model, or each its own",
                       choices=("mean", "each"), search=("mean", "each"))  # fmt: skip

    def strength(self) -> float:
        return self.lam

    def end_task(self, feed: Feed) -> None:
        self.model.net.eval()
        self.consolidate(fisher_diagonal(self.loss, self.shared(), feed))

    def consolidate(self, new: Mapping[str, Tensor]) -> None:
        """Add a task's Fisher to what the tasks before it left, and set the anchor."""
        if not self.task:
            self.hold(new)
        elif self.merge == "mean":
            t = self.task
            self.hold({name: (f + t * self.weights[name]) / (t + 1) for name, f in new.items()})
        else:
            total, before = {name: self.weights[name] + f for name, f in new.items()}, self.anchors
            self.hold(total)
            for name, f in new.items():
                share = torch.where(total[name] > 0, f / total[name], 1.0)
                self.anchors[name] = torch.lerp(before[name], self.anchors[name], share)
