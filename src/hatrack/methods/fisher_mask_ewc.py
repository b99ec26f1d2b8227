"""Fisher masks on top of EWC. MINT Lab, "A step further from EWC".

    penalty   EWC's λ·½·Σ F·(θ − θ*)², see ewc.py
    training  the gradient, penalty included, is then masked as in fisher_mask.py

One Fisher diagonal a task serves both: what matters most is frozen, the rest is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hatrack.data.feed import Feed
from hatrack.methods.ewc import EWC
from hatrack.methods.fisher_mask import FisherMask, largest
from hatrack.methods.hyper import hyper


@dataclass
class FisherMaskEWC(FisherMask, EWC):
    """Freeze the entries that matter most, hold the others by EWC's penalty."""

    name: ClassVar[str] = "fisher-mask-ewc"
    family: ClassVar[str] = "soft masks"
    source: ClassVar[str] = "MINT Lab (Fisher masks)"
    summary: ClassVar[str] = "fisher-mask, with EWC's penalty on the weights that stay free"
    stores: ClassVar[str] = "9·P bytes in all: frozen entries, Fisher, anchor"

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)

    def after_backward(self) -> None:
        super().after_backward()
        if self.lock is not None:
            self.lock.on_gradients()

    def end_task(self, feed: Feed) -> None:
        new = self.fisher(feed)
        self.consolidate(new)
        self.accumulate(largest(new, self.share, self.layerwise))
