"""PackNet. Mallya & Lazebnik 2018, "PackNet: adding multiple tasks to a single network by iterative pruning".

    train    the weights that are still free; all older ones take part in the forward pass, and are fixed
    prune    in every layer, the share of the task's weights with the smallest |w| becomes 0 and free again:
             one half of them after the first task, three quarters after a later one
    retrain  the weights that remain, which are the task's from now on; a third of the epochs (published: 20 + 10)
    forward  task t sees the weights of tasks 1..t, zeros in place of all others

Every weight keeps the number of its task. Biases are trained with the first task and fixed afterwards.

Deviations. Batch norms are one a task: the paper fixes them after its first task, ImageNet, which a small first task
cannot replace (`norm='frozen'` does as the paper; a digits sequence loses 14 points by it). The last task is pruned
like the others, since the list of tasks is open. Retraining starts at the task's learning rate and leaves the rest to
the schedule, where the published code starts at a tenth. Free weights start every task at 0, as pruning left them, in
the paper as here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.masks.lock import Lock
from hatrack.masks.widen import Places
from hatrack.methods.base import Method, ScheduleState
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept, scratch
from hatrack.methods.parts.growing import Growing
from hatrack.methods.parts.norms import NORM_HELP
from hatrack.methods.parts.weight_masks import WeightMasks
from hatrack.nets.model import Model

FREE = 0  # the owner of a weight that no task has; task t (from 0) owns with t + 1


@dataclass
class PackNet(Growing, Method):
    """Give every task the largest of the weights that earlier tasks left free."""

    name: ClassVar[str] = "packnet"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Mallya & Lazebnik 2018"
    summary: ClassVar[str] = "prunes after each task; the weights freed learn the next one"
    stores: ClassVar[str] = "P bytes in all: the owner of every weight"
    guarantee: ClassVar[bool] = True
    masks_grow: ClassVar[bool] = True
    updatable: ClassVar[bool] = True
    settles: ClassVar[bool] = True

    prune_first: float = hyper(
        0.5, "share of the first task's weights that is freed", low=0.0, high=1.0, search=(0.25, 0.9, "linear")
    )
    prune: float = hyper(
        0.75, "share of every later task's weights that is freed", low=0.0, high=1.0, search=(0.5, 0.95, "linear")
    )
    retrain: float = hyper(1 / 3, "share of the epochs that retrain after pruning", low=0.0, high=1.0)
    norm: str = hyper("task", NORM_HELP, choices=("task", "frozen"))

    finished: Tensor = kept("finished", host=True)  # how many tasks
    owner: dict[str, Tensor] = kept("owner", progress=True)
    older: dict[str, Tensor] = kept("older")  # "<number>/<name>": owners as an older version knew them
    _masks: dict[str, Tensor] = scratch()

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.masks = WeightMasks(self.model, self.shared())
        self.finished = torch.tensor(0)
        self.owner = {n: torch.full_like(p, FREE, dtype=torch.int16) for n, p in self.masks.masked.items()}

    # ---- learning

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        for owner in self.owner.values():
            owner[owner == FREE] = task + 1

    def phases(self, epochs: int) -> Sequence[int]:
        again = round(self.retrain * epochs)
        return epochs - again, again

    def begin_phase(self, phase: int) -> None:
        self._masks = self._visible(self.task)
        taken = {name: owner != self.task + 1 for name, owner in self.owner.items()}
        self.lock = Lock(self.masks.shared, self.masks.in_all(taken, self.task))

    def forward(self, x: Any) -> Tensor:
        return self._logits(x, self.task, self._masks)

    @torch.no_grad()
    def end_phase(self, phase: int, feed: Feed, state: ScheduleState) -> None:
        if phase == 0:
            share = self.prune_first if self.first else self.prune
            for name, weight in self.masks.masked.items():
                freed = smallest(weight, self.owner[name] == self.task + 1, share)
                self.owner[name][freed] = FREE
                weight[freed] = 0

    def adopt(self, gates: Tensor | None = None) -> None:
        """What is left free keeps its values: the next task learns on from them."""
        opened = {} if gates is None else self.masks.by_name(gates)
        for name, mine in opened.items():
            self.owner[name].copy_(torch.where(mine, self.task + 1, FREE))

    def worth(self, batches: Iterator[Any]) -> Tensor:
        """The rank of |w| in its layer, from 0 to 1: every layer gives up the same share."""
        sizes = (w.detach().abs().flatten() for w in self.masks.masked.values())
        return torch.cat([size.argsort(stable=True).argsort() / len(size) for size in sizes])

    def end_task(self, feed: Feed) -> None:
        self.finished = self.finished + 1

    def seen(self, task: int) -> dict[str, Tensor]:
        return {**super().seen(task), **self.masks.weights(self._visible(task), task)}

    def go_on_from(self, task: int) -> None:
        """What no later task sees of the older version's own weights is the new one's, to be trained and pruned."""
        self.older |= {f"{task}/{name}": owner.clone() for name, owner in self._owners(task).items()}
        if not any(task < there < self.task for there in self.model.remaining):
            for owner in self.owner.values():
                owner[owner == task + 1] = self.task + 1

    def take_back(self, task: int, new: int) -> None:
        for name, owner in self.owner.items():
            then = self.older.pop(f"{task}/{name}")
            owner[(then == task + 1) & ((owner == new + 1) | (owner == FREE))] = task + 1

    def release(self, task: int) -> None:
        """The next task that is there owns what the task did, for it sees all that; the last task's is free."""
        super().release(task)
        self.older = {key: owner for key, owner in self.older.items() if not key.startswith(f"{task}/")}
        later = next((t + 1 for t in self.model.remaining if t > task), FREE)
        self.owner = {n: torch.where(owner == task + 1, later, owner) for n, owner in self.owner.items()}

    def freed(self, drawn: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Free weights start every task at 0, but for a first one."""
        return {n: torch.zeros_like(t) for n, t in drawn.items()} if self.model.remaining else drawn

    # ---- using what was learned

    def _visible(self, task: int) -> dict[str, Tensor]:
        """Return which weights a task sees: its own and those of the tasks before it."""
        return {name: (owner != FREE) & (owner <= task + 1) for name, owner in self._owners(task).items()}

    def _owners(self, task: int) -> dict[str, Tensor]:
        """Return the owners of weights, for an older version as it knew them; free is what later tasks took."""
        return {name: self.older.get(f"{task}/{name}", owner) for name, owner in self.owner.items()}

    def _logits(self, x: Tensor, task: int, masks: Mapping[str, Tensor]) -> Tensor:
        return self.model.logits(x, task, weights=self.masks.weights(masks, task))

    def _own(self, task: int) -> dict[str, Tensor]:
        """Return the same at the width that the network had then."""
        return self.model.taken(task, self._visible(task))

    def predict(self, x: Tensor, task: int) -> Tensor:
        if task in self.model.copies:
            return self.model.logits(x, task)
        return self._logits(x, task, self._own(task))

    def use(self, task: int) -> Mapping[str, Tensor]:
        return {} if task in self.model.copies else self.masks.complete(self._own(task), task)

    def use_in_state(self, task: int) -> Mapping[str, tuple[str, str, int]]:
        return {name: ("upto", f"owner/{name}", task + 1) for name in self.owner}

    def sealed(self, task: int) -> Mapping[str, Tensor]:
        seen = self._visible(task) if task in self.model.copies else self._own(task)
        return {f"seen/{name}": mask for name, mask in seen.items()}

    def grown(self, places: Places, generator: torch.Generator) -> None:
        """New weights are free; they begin as they were drawn, and not at 0 like those that pruning freed."""
        wide = {name: torch.full_like(p, FREE, dtype=torch.int16) for name, p in self.masks.masked.items()}
        self.owner = {name: places.spread(name, owner, wide[name]) for name, owner in self.owner.items()}

    def state(self) -> dict[str, Tensor]:
        done = int(self.finished)  # not what a task in progress has taken
        owned = {f"owner/{n}": torch.where(owner > done, FREE, owner) for n, owner in self.owner.items()}
        return super().state() | owned

    def occupied(self) -> Mapping[str, Tensor]:
        begun = max(self.task + 1, int(self.finished))
        return self.masks.in_all({name: owner != FREE for name, owner in self.owner.items()}, begun)


def smallest(weight: Tensor, among: Tensor, share: float) -> Tensor:
    """Mark the `share` of the entries in `among` that have the smallest |w|; of equal ones, the first."""
    size = torch.where(among, weight.abs(), torch.inf).flatten()
    count = round(share * int(among.sum()))
    marked = torch.zeros_like(size, dtype=torch.bool)
    marked[size.argsort(stable=True)[:count]] = True
    return marked.view_as(weight)
