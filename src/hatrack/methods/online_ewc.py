"""Online EWC. Schwarz et al. 2018, "Progress & compress: a scalable framework for continual learning", §3.2.

    penalty  λ·½·Σ γ·F*·(θ − θ*)²
    merged   F* ← γ·F* + F_t, with γ ≤ 1: old tasks fade out gracefully; one anchor θ*, the last model

F_t as in `ewc`. γ = 1 makes F* the sum over tasks, and the penalty the quadratic approximation of the old tasks'
joint loss around the last model. The paper tunes λ and γ for its own tasks and names no default; λ is EWC's, γ is 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hatrack.methods.ewc import FisherPenalty
from hatrack.methods.hyper import hyper


@dataclass
class OnlineEWC(FisherPenalty):
    """Hold weights by a running, slowly decaying sum of Fisher informations."""

    name: ClassVar[str] = "online-ewc"
    source: ClassVar[str] = "Schwarz et al. 2018"
    summary: ClassVar[str] = "as ewc, with a decaying sum of the tasks' Fisher information"

    gamma: float = hyper(
        0.95, "γ: what remains of the old Fisher when a task ends", low=0.0, high=1.0, search=(0.5, 1.0, "linear")
    )

    def strength(self) -> float:
        return self.lam * self.gamma

    def consolidate(self, new: Mapping[str, Tensor]) -> None:
        old = self.weights
        self.hold({name: self.gamma * old[name] + f for name, f in new.items()} if old else new)
