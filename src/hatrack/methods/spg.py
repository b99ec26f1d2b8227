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

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.measure.cross_head import FIGURES, chi
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import progress
from hatrack.methods.parts.importance import crossed_importance, larger, own_importance
from hatrack.methods.parts.soft_mask import SoftMask


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

    chi_figures: Tensor = progress("chi")  # of the heads of old tasks, on the host; NaN: no value

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.chi_figures = torch.full((len(FIGURES),), torch.nan, dtype=torch.float64)

    def measured(self, feed: Feed) -> dict[str, Tensor]:
        self.model.net.train(self.importance_dropout)
        self.model.freeze_statistics()
        shared = self.shared()
        own = own_importance(self.model, self.task, shared, feed)
        crossed = crossed_importance(self.model, self.task, shared, feed) if self.chi else None
        if crossed is None:
            return own
        found = chi(own, [crossed], self.importance)
        numbers = [torch.nan if (value := found[name]) is None else value for name in FIGURES]
        self.chi_figures.copy_(torch.tensor(numbers, dtype=torch.float64))
        return larger(own, crossed)

    def facts(self) -> Mapping[str, float | None]:
        """F-each, G-each, F-total and G-total: what the heads of old tasks had to say (appendix A.3)."""
        figures = dict(zip(FIGURES, self.chi_figures.tolist(), strict=True))
        known = {name: None if isnan(value) else value for name, value in figures.items()}
        return known if any(value is not None for value in known.values()) else {}
