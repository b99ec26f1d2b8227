"""Fisher masks on top of EWC. MINT Lab, "A step further from EWC".

    penalty   EWC's λ·½·Σ F·(θ − θ*)², see ewc.py, or online EWC's λ·½·Σ γ·F*·(θ − θ*)², see online_ewc.py
    training  the gradient, penalty included, is then masked as in fisher_mask.py

One Fisher diagonal a task serves both: what matters most is frozen, the rest is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hatrack.data.feed import Feed
from hatrack.methods.ewc import MEAN, MERGE_HELP, MERGES, consolidate
from hatrack.methods.fisher_mask import FisherMask
from hatrack.methods.hyper import hyper
from hatrack.methods.online_ewc import GAMMA, GAMMA_HELP, hold_fading
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import part

ONLINE = "online"


@dataclass
class FisherMaskEWC(FisherMask):
    """Freeze the entries that matter most, hold the others by EWC's penalty."""

    name: ClassVar[str] = "fisher-mask-ewc"
    summary: ClassVar[str] = "fisher-mask, with EWC's penalty on the weights that stay free"
    stores: ClassVar[str] = "9·P bytes in all: frozen entries, Fisher, anchor"

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(5000.0, "λ: weight of the penalty", low=0.0, search=(500.0, 50_000.0, "log"))
    merge: str = hyper(
        MEAN, f"{MERGE_HELP}; online: a fading sum around the last model", choices=(*MERGES, ONLINE), search=MERGES
    )
    gamma: float = hyper(GAMMA, f"{GAMMA_HELP} (online)", low=0.0, high=1.0)

    anchor: Anchor = part(Anchor)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, self.lam * (self.gamma if self.merge == ONLINE else 1.0))

    def end_task(self, feed: Feed) -> None:
        new = self.fisher(feed)
        if self.merge == ONLINE:
            hold_fading(self.anchor, self.shared(), new, self.gamma)
        else:
            consolidate(self.anchor, self.task, self.shared(), new, self.merge)
        self.freeze(new)
