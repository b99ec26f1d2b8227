"""PMASK, hard attention on single parameters. Raskoti & Ghimire, "Continual learning with hard attention parameter
masking".

    gate          a = σ(s·e), one embedding e a task and parameter entry; the layer computes with W ⊙ a
    lock          g ← (1 − a^{≤t−1})·g entry by entry, with a^{≤t} = max(a^t, a^{≤t−1})
    annealing, compensation, ranges, regulariser: as HAT, over all entries

The paper's Eq. 3 carries HAT's unit indices over; a mask on single entries needs no min of two units, and we use the
rule per entry. Gates are exactly 0 or 1 at evaluation and once a task ends; a finished task keeps one bit an entry.
Needs no unit map, so it runs on any network. Norms with running statistics are one a task; other norms' scales and
shifts as well, since a mask on them would close units as a whole. Optionally Adam, as in a part of the paper's
experiments. The paper also speaks of EWC's penalty; there is none here, for it would have nothing to hold: outside a
task's mask its Fisher information is 0, and inside it everything is locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.masks.gates import apply, gate
from hatrack.masks.lock import Lock
from hatrack.masks.packed import pack, unpack
from hatrack.masks.unitmap import layer_of
from hatrack.methods.hard_attention import HardAttention
from hatrack.methods.hyper import hyper
from hatrack.methods.norms import private_norms
from hatrack.nets.model import Model

OTHER_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass
class PMask(HardAttention):
    """Hard attention on every single weight and bias."""

    name: ClassVar[str] = "pmask"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Raskoti & Ghimire (PMASK)"
    summary: ClassVar[str] = "learned masks on single weights; used weights are locked"
    stores: ClassVar[str] = "P/8 bytes: a bit a weight"
    guarantee: ClassVar[bool] = True
    masks_grow: ClassVar[bool] = True

    adam: bool = hyper(False, "train with Adam instead of plain SGD (then lr = 0.001 is usual)")

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.packed: list[Tensor] = []
        own = set(self.private())
        self.masked = {name: p for name, p in model.parameters().items() if name not in own}
        self.sizes = {name: p.numel() for name, p in self.masked.items()}
        self.total = sum(self.sizes.values())

    def private(self) -> Mapping[str, Tensor]:
        net, initial = self.model.net, self.model.initial
        others = [n for n in self.model.parameters() if isinstance(net.get_submodule(layer_of(n)), OTHER_NORMS)]
        return {**private_norms(self.model, "task"), **{name: initial[name] for name in others}}

    # ---- learning

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        self.refuse_unfrozen()
        super().begin_task(task, feed, generator)
        self.attend(self.total, self._taken(), generator)
        self.lock = Lock(self.masked, self._by_name(self.taken)) if self.packed else None

    def _taken(self) -> Tensor:
        taken = torch.zeros(self.total, dtype=torch.bool)
        for packed in self.packed:
            taken |= unpack(packed, self.total)
        return taken.to(self.model.device, torch.float32)

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        parts = flat.split(list(self.sizes.values()))
        return {name: part.view_as(p) for (name, p), part in zip(self.masked.items(), parts, strict=True)}

    def _weights(self, gates: Tensor) -> dict[str, Tensor]:
        return {name: apply(a, self.masked[name]) for name, a in self._by_name(gates).items()}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, fused=True) if self.adam else super().optimizer(parameters)

    def loss(self, batch: Batch) -> Tensor:
        gates = gate(self.embedding, self.scale())
        logits = self.model.logits(batch.x, self.task, weights=self._weights(gates))
        return self.attended_loss(logits, batch.y, gates)

    def end_task(self, feed: Feed) -> None:
        self.packed.append(pack(self.final_gates().bool()))
        self.model.keep_moved_buffers(self.task)

    # ---- using what was learned

    def _mask(self, task: int) -> Tensor:
        return unpack(self.packed[task], self.total).to(self.model.device)

    def predict(self, x: Tensor, task: int) -> Tensor:
        gates = self._mask(task) if task < len(self.packed) else self.final_gates()
        return self.model.logits(x, task, weights=self._weights(gates))

    def use(self, task: int) -> Mapping[str, Tensor]:
        return self._by_name(self._mask(task).float())

    def occupied(self) -> Mapping[str, Tensor]:
        taken = self._taken()
        if self.task == len(self.packed):
            taken = torch.maximum(taken, self.final_gates())
        return self._by_name(taken)

    def mask_bytes(self) -> int:
        """Return how many bytes the finished tasks' masks take."""
        return sum(packed.numel() for packed in self.packed)

    def state(self) -> dict[str, Tensor]:
        return {f"mask/{t}": packed for t, packed in enumerate(self.packed)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.packed = [state[f"mask/{t}"].cpu() for t in range(len(state))]
