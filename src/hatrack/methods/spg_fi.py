"""SPG-FI, SPG with the Fisher information in place of summed gradients. Konishi et al. 2023, section 4.

    after task t  γ^t = |tanh(Norm(F^t))|, F^t the Fisher diagonal of EWC (fisher.py), Norm as in importance.py
                  γ^{≤t} = max(γ^t, γ^{≤t−1})
    training      g ← (1 − γ^{≤t−1})·g, see soft_mask.py

The paper replaces the importance and says no more; Norm and tanh stay, since a soft mask needs values from 0 to 1.
There is no cross-head importance: EWC's Fisher information knows the task's own loss only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.parts.fisher import fisher_diagonal
from hatrack.methods.parts.importance import normalised
from hatrack.methods.parts.soft_mask import SoftMask


@dataclass
class SPGFisher(SoftMask):
    """Soft masks on gradients by normalised Fisher information."""

    name: ClassVar[str] = "spg-fi"
    family: ClassVar[str] = "soft masks"
    source: ClassVar[str] = "Konishi et al. 2023 (SPG-FI)"
    summary: ClassVar[str] = "SPG with Fisher information as the importance"
    stores: ClassVar[str] = "4·P bytes in all: importances"

    def measured(self, feed: Feed) -> dict[str, Tensor]:
        self.model.net.eval()
        return normalised(fisher_diagonal(self.loss, self.shared(), feed))
