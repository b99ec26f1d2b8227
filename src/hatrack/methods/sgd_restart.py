"""SGD-restart: the network goes back to its initial weights before every task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from hatrack.data.feed import Feed
from hatrack.methods.base import Method


@dataclass
class SGDRestart(Method):
    """Start every task from the initial weights; the last task's network is the one that answers."""

    name: ClassVar[str] = "sgd-restart"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Serrà et al. 2018"
    summary: ClassVar[str] = "re-initialised before each task; forgets all"
    stores: ClassVar[str] = "nothing"

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.model.reset()
