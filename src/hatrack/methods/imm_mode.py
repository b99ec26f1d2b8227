"""Mode-IMM, incremental moment matching. Lee et al. 2017; with L2-transfer, as run by Serrà et al. 2018.

    penalty  λ·½·‖θ − θ_old‖² while a task is learned, θ_old the merged weights of the tasks before
    merge    θ ← (F_t·θ + F_old·θ_old)/(F_t + F_old) when it ends, entry by entry; then F_old ← F_old + F_t

F_t as in `ewc`, of the task's cross-entropy alone, at the weights before the merge. Where no task has a Fisher value,
no task cares and the plain mean of `imm-mean` is taken. Heads and running statistics as in `imm-mean`.

HAT's baseline computes this merge and never writes it back, and its Fisher includes the penalty's gradient. Here the
merged weights are what answers. λ = 1 is what its authors noted as the best of their grid (their code has 0.01).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.hyper import hyper
from hatrack.methods.imm_mean import IMMMean
from hatrack.methods.parts.declared import kept
from hatrack.methods.parts.fisher import fisher_diagonal


@dataclass
class IMMMode(IMMMean):
    """Average the networks of all tasks, weight by weight, by their Fisher information."""

    name: ClassVar[str] = "imm-mode"
    summary: ClassVar[str] = "as imm-mean, each weight averaged by the tasks' Fisher information"
    stores: ClassVar[str] = "8·P bytes in all: merged weights, Fisher"

    clip: float = hyper(1000.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(1.0, "λ: weight of the pull to the merged weights", low=0.0, search=(1e-5, 10.0, "log"))

    fisher: dict[str, Tensor] = kept("fisher")

    def merged(self, feed: Feed) -> dict[str, Tensor]:
        self.model.net.eval()
        new, old = fisher_diagonal(self.loss, self.shared(), feed), self.fisher
        self.fisher = {name: f + old[name] for name, f in new.items()} if old else new
        mean = super().merged(feed)
        theta = self.shared()
        weighed = {n: new[n] * theta[n].detach() + old[n] * self.anchor.anchors[n] for n in mean}
        return {n: torch.where(self.fisher[n] > 0, weighed[n] / self.fisher[n], value) for n, value in mean.items()}
