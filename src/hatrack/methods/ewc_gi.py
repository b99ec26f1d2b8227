"""EWC-GI: EWC's penalty with SPG's gradient importance. Konishi et al. 2023, "Parameter-level soft-masking for
continual learning", §4.

    penalty    λ·½·Σ γ^{≤t−1}·(θ − θ*)², θ* the last model
    importance γ^{≤t} = max(γ^t, γ^{≤t−1}), γ^t as SPG has it, cross-head importance included

No soft masking: the comparison with SPG shows what masking gains over a penalty. γ lies between 0 and 1 whatever the
task, where Fisher values are tiny, so that EWC's λ does not carry over. The paper names none; 0.1 is the best of
0.03, 0.1, 0.3, 1 by validation accuracy on split-mnist and permuted-digits (benchmarks/accuracy.py, seeds 10 and 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import part
from hatrack.methods.parts.importance import gradient_importance, larger


@dataclass
class EWCGI(Method):
    """Hold weights by SPG's accumulated gradient importance."""

    name: ClassVar[str] = "ewc-gi"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Konishi et al. 2023 (EWC-GI)"
    summary: ClassVar[str] = "ewc's penalty, with spg's gradient importance in place of the Fisher"
    stores: ClassVar[str] = "8·P bytes in all: importances and anchor"
    settles: ClassVar[bool] = True

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(0.1, "λ: weight of the penalty", low=0.0, search=(0.01, 10.0, "log"))

    anchor: Anchor = part(Anchor)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, self.lam)

    def end_task(self, feed: Feed) -> None:
        self.model.net.eval()
        new = gradient_importance(self.model, self.task, self.shared(), feed)
        old = self.anchor.weights
        self.anchor.hold(self.shared(), larger(new, old) if old else new)
