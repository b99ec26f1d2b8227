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

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import part
from hatrack.methods.parts.fisher import fisher_diagonal

GAMMA, GAMMA_HELP = 0.95, "γ: what remains of the old Fisher when a task ends"


@dataclass
class OnlineEWC(Method):
    """Hold weights by a running, slowly decaying sum of Fisher informations."""

    name: ClassVar[str] = "online-ewc"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Schwarz et al. 2018"
    summary: ClassVar[str] = "as ewc, with a decaying sum of the tasks' Fisher information"
    stores: ClassVar[str] = "8·P bytes in all: Fisher and anchor"
    settles: ClassVar[bool] = True

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(5000.0, "λ: weight of the penalty", low=0.0, search=(500.0, 50_000.0, "log"))
    gamma: float = hyper(GAMMA, GAMMA_HELP, low=0.0, high=1.0, search=(0.5, 1.0, "linear"))

    anchor: Anchor = part(Anchor)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, self.lam * self.gamma)

    def end_task(self, feed: Feed) -> None:
        self.model.net.eval()
        hold_fading(self.anchor, self.shared(), fisher_diagonal(self.loss, self.shared(), feed), self.gamma)


def hold_fading(anchor: Anchor, parameters: Mapping[str, Tensor], new: Mapping[str, Tensor], gamma: float) -> None:
    """F* ← γ·F* + F_t, around the weights as they are now."""
    old = anchor.weights
    anchor.hold(parameters, {name: gamma * old[name] + f for name, f in new.items()} if old else new)
