"""SPG, soft-masking of parameter-level gradient flow. Konishi et al. 2023, "Parameter-level soft-masking for
continual learning".

    after task t  γ^t = max over heads τ ≤ t of |tanh(Norm(∂L_{t,τ}/∂θ))|, see importance.py
                  γ^{≤t} = max(γ^t, γ^{≤t−1})
    training      g ← (1 − γ^{≤t−1})·g, see soft_mask.py
    forward       the plain network, nothing is masked

`chi=False` is the paper's SPG−CHI, `importance_epoch=n` its @en: the importance as it was after epoch n, instead of
at the end.

Deviations. The published code leaves dropout on while it collects gradients; the paper does not say so, and by default
we take the gradient of the function that the task will be answered with (`importance_dropout` gives the published
way).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.hyper import hyper
from hatrack.methods.importance import gradient_importance
from hatrack.methods.soft_mask import SoftMask


@dataclass
class SPG(SoftMask):
    """Soft masks on gradients by the importance of every single parameter."""

    name: ClassVar[str] = "spg"
    family: ClassVar[str] = "soft masks"
    source: ClassVar[str] = "Konishi et al. 2023"
    summary: ClassVar[str] = "gradients weakened by each parameter's importance to old tasks"
    stores: ClassVar[str] = "4·P bytes in all: importances"

    chi: bool = hyper(True, "let the heads of old tasks have a say in the importance (cross-head importance)")
    importance_dropout: bool = hyper(False, "collect the gradients with dropout on, as the published code does")

    def measured(self, feed: Feed) -> dict[str, Tensor]:
        self.model.net.train(self.importance_dropout)
        self.model.freeze_statistics()
        return gradient_importance(self.model, self.task, self.shared(), feed, self.chi)
