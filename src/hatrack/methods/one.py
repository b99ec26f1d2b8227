"""ONE: a network a task. Each starts from the initial weights and learns by itself; nothing is shared.

    θ_t ← θ_initial, then plain training on task t; task t is answered by θ_t and its head

The reference for forward transfer in Konishi et al. 2023 (SPG): whatever a method gains or loses on a new task is
measured against it. No forgetting and no transfer, at the price of a whole network a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hatrack.methods.base import Method


@dataclass
class One(Method):
    """Keep every tensor of the network private to its task."""

    name: ClassVar[str] = "one"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Konishi et al. 2023 (ONE)"
    summary: ClassVar[str] = "a network a task, each from the initial weights; no forgetting, no transfer"
    stores: ClassVar[str] = "4·P bytes: a whole network"
    guarantee: ClassVar[bool] = True

    def private(self) -> Mapping[str, Tensor]:
        return {name: self.model.initial[name] for name in self._kept()}

    def _kept(self) -> list[str]:
        """Name all that training may move: parameters and buffers."""
        return [*self.model.parameters(), *self.model.buffers()]

    def use(self, task: int) -> Mapping[str, Tensor]:
        return {}  # no task relies on a shared entry

    def occupied(self) -> Mapping[str, Tensor]:
        return {}
