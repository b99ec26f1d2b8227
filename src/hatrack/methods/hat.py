"""HAT, hard attention to the task. Serrà et al. 2018, "Overcoming catastrophic forgetting with hard attention".

    gate          a = σ(s·e), one embedding e a task and unit, multiplied where the unit is read
    annealing     s = 1/s_max + (s_max − 1/s_max)·(b−1)/(B−1) within every epoch; s_max at evaluation
    lock          g ← [1 − min(a^{≤t−1}_out, a^{≤t−1}_in)]·g, with a^{≤t} = max(a^t, a^{≤t−1})
    compensation  q ← q·s_max·[cosh(s·e) + 1] / (s·[cosh(e) + 1]), |s·e| ≤ 50; then |e| ≤ 6 after the step
    loss          cross-entropy + c·Σ a·(1 − a^{<t}) / Σ (1 − a^{<t})

Deviations. By default gates are made exactly 0 or 1 when a task ends (`hard`), so that old tasks cannot change at
all; `hard=False` keeps the paper's soft gates and the little forgetting that comes with them. Works on any network
through its unit map; in the paper's networks the lock is exactly the rule above. The published code divides by B
in the annealing; we follow the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from hatrack.data.feed import Batch, Feed
from hatrack.masks.gates import EMBEDDING_RANGE, anneal, compensate, gate, sparsity
from hatrack.masks.lock import Lock
from hatrack.methods.base import Method, bits
from hatrack.methods.hyper import hyper
from hatrack.methods.norms import NORM_HELP, NORMS, private_norms
from hatrack.nets.model import Model


@dataclass
class HAT(Method):
    """Hard attention to the task: a learned gate on every unit, weights between gated units locked."""

    name: ClassVar[str] = "hat"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Serrà et al. 2018"
    summary: ClassVar[str] = "learned unit masks; weights between used units are locked"
    stores: ClassVar[str] = "U bytes: a gate a unit"
    guarantee: ClassVar[bool] = True
    masks_grow: ClassVar[bool] = True

    s_max: float = hyper(400.0, "gate scale at the end of an epoch: stability", low=1.0, search=(25.0, 800.0, "log"))
    c: float = hyper(0.75, "weight of the sparsity term: compressibility", low=0.0, search=(0.1, 2.5, "log"))
    hard: bool = hyper(True, "make the gates exactly 0 or 1 when a task ends")
    norm: str = hyper("task", NORM_HELP, choices=NORMS)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.masks: list[Tensor] = []

    def private(self) -> Mapping[str, Tensor]:
        return private_norms(self.model, self.norm)

    def train_mode(self) -> None:
        super().train_mode()
        if self.norm == "frozen" and self.task > 0:
            self.model.freeze_statistics()

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        size = self.model.units.size
        self.embedding = nn.Parameter(torch.randn(size, generator=generator).to(self.model.device))
        self.taken = self._taken()
        if self.masks:
            self.lock = Lock(self.model.parameters(), self._shared(self.taken))

    def _taken(self) -> Tensor:
        """a^{<t}: the largest gate that any finished task has put on each unit."""
        if not self.masks:
            return torch.zeros(self.model.units.size, device=self.model.device)
        return torch.stack([mask.float() for mask in self.masks]).amax(0)

    def trainable(self) -> dict[str, Tensor]:
        return {**super().trainable(), "embedding": self.embedding}

    def loss(self, batch: Batch) -> Tensor:
        gates = gate(self.embedding, anneal(self.clock.fraction(), self.s_max))
        logits = self.model.logits(batch.x, self.task, gates)
        return nn.functional.cross_entropy(logits, batch.y) + self.c * sparsity(gates, self.taken)

    def valid_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return super().valid_loss(logits, y) + self.c * sparsity(gate(self.embedding, self.s_max), self.taken)

    def after_backward(self) -> None:
        super().after_backward()
        assert self.embedding.grad is not None
        s = anneal(self.clock.fraction(), self.s_max)
        compensate(self.embedding.grad, self.embedding.detach(), s, self.s_max)

    def after_step(self) -> None:
        super().after_step()
        self.embedding.data.clamp_(-EMBEDDING_RANGE, EMBEDDING_RANGE)

    def end_task(self, feed: Feed) -> None:
        final = gate(self.embedding.detach(), self.s_max)
        self.masks.append(final > 0.5 if self.hard else final)
        if self.norm == "task":
            self.model.keep_moved_buffers(self.task)

    def predict(self, x: Tensor, task: int) -> Tensor:
        learned = task < len(self.masks)
        return self.model.logits(x, task, self.masks[task] if learned else gate(self.embedding, self.s_max))

    def use(self, task: int) -> Mapping[str, Tensor]:
        return self._shared(self.masks[task].float())

    def occupied(self) -> Mapping[str, Tensor]:
        gates = self._taken()
        if self.task == len(self.masks):
            gates = torch.maximum(gates, gate(self.embedding.detach(), self.s_max))
        return self._shared(gates)

    def _shared(self, gates: Tensor) -> dict[str, Tensor]:
        """Return min(a_out, a_in) for every parameter that tasks share."""
        own = self.model.private[self.task]
        return {name: used for name, used in self.model.units.used(gates).items() if name not in own}

    def promises(self) -> bool:
        return self.hard and self.norm != "shared"

    def unit_gates(self, task: int) -> Tensor:
        return self.masks[task]

    def s_now(self) -> float:
        return self.s_max

    def state(self) -> dict[str, Tensor]:
        return {f"mask/{t}": bits(mask) if self.hard else mask for t, mask in enumerate(self.masks)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        stored = [state[f"mask/{t}"].to(self.model.device) for t in range(len(state))]
        self.masks = [mask.bool() if self.hard else mask for mask in stored]
