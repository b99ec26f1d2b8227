"""HPG, SPG with a hard mask. Konishi et al. 2023, appendix A.8.

    training  g ← 0 where γ^{≤t−1} > threshold, g as it is elsewhere; γ as in SPG

The head's gradient is scaled as in SPG, by the mean of what is blocked. Blocked entries keep their bits, but old tasks
may still drift: the others, which they use as well, move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hatrack.methods.hyper import hyper
from hatrack.methods.spg import SPG


@dataclass
class HPG(SPG):
    """Hard masks on gradients: parameters whose importance is above a threshold are blocked."""

    name: ClassVar[str] = "hpg"
    source: ClassVar[str] = "Konishi et al. 2023 (HPG)"
    summary: ClassVar[str] = "SPG's importance, cut at a threshold: blocked or free"
    stores: ClassVar[str] = "4·P bytes in all: importances"

    threshold: float = hyper(
        0.5, "importance above which a parameter is blocked", low=0.0, high=1.0, search=(0.1, 0.3, 0.5, 0.7, 0.9)
    )

    def amounts(self) -> dict[str, Tensor]:
        return {name: (gamma > self.threshold).to(gamma.dtype) for name, gamma in self.importance.items()}
