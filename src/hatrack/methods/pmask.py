"""PMASK, hard attention on single parameters. Raskoti & Ghimire, "Continual learning with hard attention parameter
masking".

    gate          a = σ(s·e), one embedding e a task and parameter entry; the layer computes with W ⊙ a
    lock          g ← (1 − a^{≤t−1})·g entry by entry, with a^{≤t} = max(a^t, a^{≤t−1})
    annealing, compensation, ranges, regulariser: as HAT, over all entries

The paper's Eq. 3 carries HAT's unit indices over; a mask on single entries needs no min of two units, and we use the
rule per entry. Gates are exactly 0 or 1 at evaluation and once a task ends; a finished task keeps one bit an entry.
`hard=False` keeps the paper's soft gates, a number an entry, and the forgetting that comes with them.
Needs no unit map, so it runs on any network. Norms with running statistics are one a task; other norms' scales and
shifts as well, since a mask on them would close units as a whole. Optionally Adam, as in a part of the paper's
experiments. The paper also speaks of EWC's penalty: `lam` is its λ, for soft gates alone (see ewc.py). With hard ones
it would have nothing to hold: outside a task's mask its Fisher information is 0, and inside it everything is locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hatrack.data.feed import Feed
from hatrack.errors import HatrackError
from hatrack.masks.lock import Lock
from hatrack.masks.unitmap import layer_of
from hatrack.masks.weight_gates import gated_entries
from hatrack.masks.widen import Places
from hatrack.methods.ewc import MEAN, consolidate
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import part
from hatrack.methods.parts.fisher import fisher_diagonal
from hatrack.methods.parts.growing import Growing
from hatrack.methods.parts.hard_attention import HardAttention
from hatrack.methods.parts.weight_masks import PackedMasks
from hatrack.nets.model import Model

OTHER_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass
class PMask(Growing, HardAttention):
    """Hard attention on every single weight and bias."""

    name: ClassVar[str] = "pmask"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Raskoti & Ghimire (PMASK)"
    summary: ClassVar[str] = "learned masks on single weights; used weights are locked"
    stores: ClassVar[str] = "P/8 bytes: a bit a weight"
    guarantee: ClassVar[bool] = True
    masks_grow: ClassVar[bool] = True
    updatable: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    norms: ClassVar[str] = "task"

    hard: bool = hyper(True, "make the gates exactly 0 or 1 when a task ends")
    lam: float = hyper(0.0, "λ: weight of EWC's penalty beside soft gates", low=0.0)
    adam: bool = hyper(False, "train with Adam instead of plain SGD (then lr = 0.001 is usual)")

    anchor: Anchor = part(Anchor)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam and self.hard:
            raise HatrackError(
                f"pmask: lam = {self.lam:g} has nothing to hold where gates are hard (what a task uses is locked, the "
                f"rest does not matter to it); leave lam out, or set hard = false."
            )

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.masks = PackedMasks(self.model, self.shared(), biases=True)

    def private(self) -> Mapping[str, Tensor]:
        net, initial = self.model.net, self.model.initial
        others = [n for n in self.model.parameters() if isinstance(net.get_submodule(layer_of(n)), OTHER_NORMS)]
        return {**super().private(), **{name: initial[name] for name in others}}

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        taken = self.masks.union(self.model.copies).float()
        self.attend(len(taken), taken, generator)
        self.lock = Lock(self.masks.masked, self.masks.by_name(taken)) if not self.first else None
        self.anchor.start(self, self.lam)

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, fused=True) if self.adam else super().optimizer(parameters)

    def forward(self, x: Any) -> Tensor:
        if self.fixed:
            return self.gated(x, self.task, self.final_gates())
        self.price, weights = gated_entries(self.embedding, self.scale(), self.prices, self.masks.masked)
        return self.model.logits(x, self.task, weights=weights)

    @property
    def hardens(self) -> bool:
        return self.hard

    def gated(self, x: Any, task: int, gates: Tensor) -> Tensor:
        return self.model.logits(x, task, weights=self.masks.weights(self.masks.by_name(gates, task), task))

    def end_task(self, feed: Feed) -> None:
        gates = self.final_gates()
        self.masks.keep(gates.bool() if self.hard else gates)
        if self.lam:
            self.model.net.eval()
            consolidate(self.anchor, self.task, self.masks.masked, self._fisher(feed), MEAN)

    def _fisher(self, feed: Feed) -> dict[str, Tensor]:
        """The Fisher diagonal of the task's loss as it is answered, with its soft gates."""
        return fisher_diagonal(lambda b: self.task_loss(self.predict(b.x, self.task), b), self.masks.masked, feed)

    def seen(self, task: int) -> dict[str, Tensor]:
        return {**super().seen(task), **self.masks.weights(self.masks.of(task), task)}

    def go_on_from(self, task: int) -> None:
        self.lean(self.masks.flat(task).float())

    def predict(self, x: Tensor, task: int) -> Tensor:
        if task in self.model.copies:
            return self.model.logits(x, task)
        finished = task < len(self.masks.packed)
        return self.gated(x, task, self.masks.flat(task) if finished else self.final_gates())

    def use(self, task: int) -> Mapping[str, Tensor]:
        return {} if task in self.model.copies else self.masks.complete(self.masks.of(task), task)

    def use_in_state(self, task: int) -> Mapping[str, tuple[str, str, int]]:
        return self.masks.bits(task)

    def grown(self, places: Places, generator: torch.Generator) -> None:
        """Nothing is shared but EWC's anchors: masks keep their width."""
        if self.lam:
            raise HatrackError(f"pmask: lam = {self.lam:g} holds weights of the width that they had; leave lam out.")

    def learned_besides(self, tasks: int) -> int:
        return self.masks.entries(tasks)

    def promises(self) -> bool:
        return self.hard

    def occupied(self) -> Mapping[str, Tensor]:
        taken = self.masks.union(self.model.copies).float()
        if self.task == len(self.masks.packed):
            taken = torch.maximum(taken, self.final_gates())
        return self.masks.by_name(taken)
