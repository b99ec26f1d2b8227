"""B2: copy the last task's network, fine-tune the copy, keep them all.

    θ_t ← θ_{t−1}, then plain training on task t; task t is answered by θ_t and its head

A reference of Konishi et al. 2023 (SPG, appendix): forward transfer from the task before, no forgetting, a whole
network a task. The head of the new task starts fresh, since tasks differ in their classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hatrack.methods.one import One


@dataclass
class FinetuneCopy(One):
    """Start every task's own network where the task before ended."""

    name: ClassVar[str] = "finetune-copy"
    source: ClassVar[str] = "Konishi et al. 2023 (B2)"
    summary: ClassVar[str] = "a network a task, each fine-tuned from the one before; no forgetting"
    stores: ClassVar[str] = "4·P bytes: a whole network"

    def unreleasable(self) -> str:
        return "every network was made of the one before"

    def private(self) -> Mapping[str, Tensor]:
        return {**super().private(), **(self.own() if self.model.remaining else {})}
