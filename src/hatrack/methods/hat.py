"""HAT, hard attention to the task. Serrà et al. 2018, "Overcoming catastrophic forgetting with hard attention".

    gate          a = σ(s·e), one embedding e a task and unit, multiplied where the unit is read
    annealing     s = 1/s_max + (s_max − 1/s_max)·(b−1)/(B−1) within every epoch; s_max at evaluation
    lock          g ← [1 − min(a^{≤t−1}_out, a^{≤t−1}_in)]·g, with a^{≤t} = max(a^t, a^{≤t−1})
    compensation  q ← q·s_max·[cosh(s·e) + 1] / (s·[cosh(e) + 1]), |s·e| ≤ 50; then |e| ≤ 6 after the step
    loss          cross-entropy + c·Σ a·(1 − a^{<t}) / Σ (1 − a^{<t})

Deviations. By default gates are made exactly 0 or 1 when a task ends (`hard`), so that old tasks cannot change at all,
and whenever it is evaluated before, so that the best epoch is the best with such gates; `hard=False` keeps the paper's
soft gates and the little forgetting that comes with them. Works on any network through its unit map; in the paper's
networks the lock is exactly the rule above. The published code divides by B in the annealing; we follow the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.masks.gates import flushed, gate, sparsity
from hatrack.masks.lock import Lock
from hatrack.masks.widen import Places
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept
from hatrack.methods.parts.growing import Growing
from hatrack.methods.parts.hard_attention import HardAttention
from hatrack.methods.parts.norms import NORM_HELP, NORMS


@dataclass
class HAT(Growing, HardAttention):
    """Hard attention to the task: a learned gate on every unit, weights between gated units locked."""

    name: ClassVar[str] = "hat"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Serrà et al. 2018"
    summary: ClassVar[str] = "learned unit masks; weights between used units are locked"
    stores: ClassVar[str] = "U bytes: a gate a unit"
    guarantee: ClassVar[bool] = True
    masks_grow: ClassVar[bool] = True
    updatable: ClassVar[bool] = True

    hard: bool = hyper(True, "make the gates exactly 0 or 1 when a task ends")
    norm: str = hyper("task", NORM_HELP, choices=NORMS)

    masks: list[Tensor] = kept("mask", bits=True)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.attend(self.model.units.size, self._taken(), generator)
        self.lock = None if self.first else Lock(self.model.parameters(), self._used(self.taken))

    def _taken(self) -> Tensor:
        """a^{<t}: the largest gate that any finished task has put on each unit."""
        taken = torch.zeros(self.model.units.size, device=self.model.device)
        for task, mask in enumerate(self.masks):
            if mask.numel() and task not in self.model.copies:  # else it was released, or is an older version
                taken = torch.maximum(taken, self.model.spread_units(task, mask.float()))
        return taken

    def forward(self, x: Any) -> Tensor:
        if self.fixed:
            return self.gated(x, self.task, self.final_gates())
        gates = gate(self.embedding, self.scale())
        self.price = sparsity(gates, self.prices)
        return self.model.logits(x, self.task, flushed(gates))

    @property
    def hardens(self) -> bool:
        return self.hard

    def gated(self, x: Any, task: int, gates: Tensor) -> Tensor:
        return self.model.logits(x, task, gates)

    def end_task(self, feed: Feed) -> None:
        final = self.final_gates()
        self.masks.append(final.bool() if self.hard else final)

    def predict(self, x: Tensor, task: int) -> Tensor:
        learned = task < len(self.masks)
        return self.gated(x, task, self.masks[task] if learned else self.final_gates())

    def go_on_from(self, task: int) -> None:
        self.lean(self.masks[task].float())

    def use(self, task: int) -> Mapping[str, Tensor]:
        if task in self.model.copies:
            return {}
        return self._used(self.model.spread_units(task, self.masks[task].float()))

    def grown(self, places: Places, generator: torch.Generator) -> None:
        """Nothing is shared: masks keep their width."""

    def occupied(self) -> Mapping[str, Tensor]:
        gates = self._taken()
        if self.task == len(self.masks):
            gates = torch.maximum(gates, self.final_gates())
        return self._used(gates)

    def _used(self, gates: Tensor) -> dict[str, Tensor]:
        """Return min(a_out, a_in) for every parameter that tasks share."""
        own = self.own()
        return {name: used for name, used in self.model.units.used(gates).items() if name not in own}

    def promises(self) -> bool:
        return self.guarantee and self.hard and self.norm != "shared"

    def learned_besides(self, tasks: int) -> int:
        return sum(self.model.width(task).units.size for task in range(tasks))

    def unit_gates(self, task: int) -> Tensor:
        return self.masks[task]
