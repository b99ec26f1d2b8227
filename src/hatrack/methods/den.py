"""DEN, dynamically expandable networks. Yoon, Yang, Lee & Hwang 2018.

    first task   cross-entropy with an L1 term
    later tasks  1 select   the new head alone is fitted with L1; the units that it reaches back to through weights
                            that are not zero are selected
                 2 retrain  only weights between selected units are trained
                 3 expand   if the loss is still above τ: k new units a layer, trained alone with L1 and a group term
                            Σ‖w_i‖; new units whose weights come out as zero are given back
                 4 split    a unit whose weights moved farther than σ, ‖w_i − w_i*‖ > σ, is doubled: the copy keeps
                            what it has become, the unit itself goes back to w_i*; then all is trained once more
    throughout   ½·l2·‖w‖² and ½·λ·‖w − w*‖² on weights of old units, * the weights before the task
    inference    a task uses the units that existed when it was learned

L1 and group term are applied as shrinking steps, w ← sign(w)·max(|w| − l1, 0), after each step of Adam. Constants as
in the published code (l1 1e-5, l2 1e-4, group 1e-3, λ 0.5, τ 0.01, σ 0.05, k 10; the selection takes a tenth of the
epochs, each other part all of them).

Deviations. A network that is handed over cannot grow, so it starts with a share of its units (`start`), and "adding"
opens units of the reserve; the unit map makes this work on any network. When the reserve is empty nothing is added
or split. At most k units a layer are split, those that moved most. For the new task the copy stands in for the unit
it was split from, so that a split changes no answer of the task; the published code keeps both. The training loss
that is compared with τ is the mean over all training samples. Norms with running statistics are one a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.errors import HatrackError
from hatrack.masks.lock import Lock
from hatrack.masks.unitmap import Site, layer_of
from hatrack.methods.base import Method, ScheduleState
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept, progress, scratch
from hatrack.methods.parts.nodes import axes, read, written
from hatrack.modes import evaluating

SELECT, RETRAIN, EXPAND, SPLIT = range(4)
SELECTION_SHARE = 10


@dataclass
class DEN(Method):
    """A network that retrains what a task needs, grows, and splits what drifts."""

    name: ClassVar[str] = "den"
    norms: ClassVar[str] = "task"
    settles: ClassVar[bool] = True
    family: ClassVar[str] = "distillation, replay, optimisation"
    source: ClassVar[str] = "Yoon et al. 2018"
    summary: ClassVar[str] = "retrains selected units, opens new ones, doubles those that drift"
    stores: ClassVar[str] = "U bytes; 4·P in all: the last weights"

    lr: float = hyper(0.001, "learning rate at the start of every task", low=0.0, search=(1e-4, 1e-2, "log"))
    lr_min: float = hyper(1e-5, "training on a task stops when the learning rate falls below", low=0.0)
    start: float = hyper(0.5, "share of each layer's units that the first task may use", low=0.0, high=1.0)
    grow: int = hyper(10, "units a layer that an expansion opens, and a split doubles at most", low=0)
    threshold: float = hyper(0.01, "training loss above which the network is expanded", low=0.0)
    drift: float = hyper(0.05, "distance that a unit's weights may move before it is split", low=0.0)
    l1: float = hyper(1e-5, "shrinking of every trained weight after a step", low=0.0, search=(1e-6, 1e-3, "log"))
    l2: float = hyper(1e-4, "weight of the L2 term", low=0.0)
    group: float = hyper(1e-3, "shrinking of a new unit's weights as a whole after a step", low=0.0)
    hold: float = hyper(0.5, "weight of the pull to the weights before the task", low=0.0, search=(0.01, 10.0, "log"))

    masks: list[Tensor] = kept("mask", bits=True)
    opened: Tensor | None = kept("opened", bits=True)  # units that any finished task has opened
    anchors: dict[str, Tensor] = kept("anchor")  # the weights after the last task
    open: Tensor = progress("open")  # units there are now
    away: Tensor = progress("away")  # units that the task has left to older ones, for their copies
    born: Tensor = progress("born")  # units that the expansion opened
    selected: Tensor = progress("selected")
    before: Tensor = scratch()
    allowed: dict[str, Tensor] = scratch()
    old: dict[str, Tensor] = scratch()
    _groups: list[tuple[Tensor, Tensor]] = scratch()

    # ---- the course of a task

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._check()
        self._read_by_head()
        self.before = self._first() if self.opened is None else self.opened
        self.open, self.selected = self.before.clone(), self.before.clone()
        self.away, self.born = torch.zeros_like(self.before), torch.zeros_like(self.before)
        self.stage = RETRAIN

    def _check(self) -> None:
        """Refuse a network whose units cannot be copied axis by axis."""
        for name in self.model.units.uses:
            indices = [index for use in axes(self.model.units, name) for index in use]
            if any(sum(side > 1 for side in index.shape) > 1 for index in indices):
                raise HatrackError(
                    f"den copies units row by row and column by column, which {name!r} does not allow (a grouped "
                    f"convolution or a view of a weight): use another network or another method."
                )

    def _first(self) -> Tensor:
        units = self.model.units
        opened = torch.zeros(units.size, dtype=torch.bool, device=self.model.device)
        for site in units.sites:
            opened[site.start : site.start + max(1, ceil(self.start * site.size))] = True
        return opened

    def phases(self, epochs: int) -> Sequence[int]:
        return (epochs,) if self.task == 0 else (max(1, epochs // SELECTION_SHARE), epochs, epochs, epochs)

    def begin_phase(self, phase: int) -> None:
        self.stage = phase if self.task else RETRAIN
        self.allowed = self._allowed()
        self.old = self._used(self.before)
        self.lock = Lock(self.shared(), {name: 1 - amount for name, amount in self.allowed.items()})
        self._groups = self._new_rows() if self.stage == EXPAND else []

    def trainable(self) -> dict[str, Tensor]:
        everything = super().trainable()
        if self.stage != SELECT:
            return everything
        return {name: tensor for name, tensor in everything.items() if name.startswith("head/")}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        empty = (self.stage == EXPAND and not bool(self.born.any())) or (
            self.stage == SPLIT and not bool(self.away.any())
        )
        return torch.optim.Adam(parameters, lr=0.0 if empty else self.lr, fused=True)  # 0: the phase is over at once

    def end_phase(self, phase: int, feed: Feed, state: ScheduleState) -> None:
        if self.stage == SELECT:
            self.selected.copy_(self.select())
        elif self.stage == RETRAIN and self.task and self._training_loss(feed) > self.threshold:
            self._open()
        elif self.stage == EXPAND:
            self._give_back()
            self.split()

    def end_task(self, feed: Feed) -> None:
        self.masks.append(self._gates())
        self.opened = self.open.clone()
        self.anchors = {name: p.detach().clone() for name, p in self.shared().items()}

    # ---- 1 select

    @torch.no_grad()
    def select(self) -> Tensor:
        """Return the open units that the head reaches back to through weights that are not zero."""
        units, device = self.model.units, self.model.device
        reached = torch.zeros(units.size + 2, dtype=torch.bool, device=device)
        reached[-1] = True  # what the unit map calls always on
        links = [
            (rows.to(device), columns.to(device), (weight != 0).flatten(2).any(2) if weight.ndim > 2 else weight != 0)
            for name, weight in self.shared().items()
            if weight.ndim > 1
            for rows, columns in zip(written(units, name), read(units, name), strict=False)
        ]
        by_head = (self.model.heads[self.task].weight != 0).any(0)
        readers = torch.zeros_like(reached)
        for units_read in [units.flat_features.to(device), *(columns for _, columns, _ in links)]:
            readers[units_read] = True
        reached |= ~readers  # read by no weight, but inside forward(): no telling, so they count as reached
        reached[self._read_by_head().to(device)[by_head]] = True
        for _ in range(len(units.sites) + 1):
            for rows, columns, linked in links:
                reached[columns[(linked & reached[rows][:, None]).any(0)]] = True
        return reached[: units.size] & self.open

    # ---- 3 expand

    @torch.no_grad()
    def _training_loss(self, feed: Feed) -> float:
        total = torch.zeros((), device=self.model.device)
        with evaluating(self.model.net):
            for batch in feed.batches(1000):
                total += self.task_loss(self.predict(batch.x, self.task), batch) * len(batch.y)
        return float(total) / len(feed)

    def _open(self) -> None:
        for site in self.model.units.sites:
            new = self._reserve(site)[: self.grow]
            self.open[new] = True
            self.born[new] = True

    @torch.no_grad()
    def _give_back(self) -> None:
        """Close new units whose weights are all zero; what no open unit uses goes back to its initial value."""
        used = self._used(self.open)
        size = self._by_unit({name: used[name] * p for name, p in self.shared().items()})
        useless = self.born & (size == 0)
        self.open &= ~useless
        self.born &= ~useless
        used = self._used(self.open)
        for name, parameter in self.shared().items():
            parameter.copy_(torch.where(used[name] > 0, parameter, self.model.initial[name]))

    # ---- 4 split

    @torch.no_grad()
    def split(self) -> None:
        """Double the units that moved too far: the copy goes on, the unit goes back."""
        old = self._used(self.before)
        moved = self._by_unit({name: old[name] * (p - self.anchors[name]) for name, p in self.shared().items()})
        source = torch.arange(self.model.units.size, device=self.model.device)
        for site in self.model.units.sites:
            part = slice(site.start, site.start + site.size)
            reserve = self._reserve(site)
            far = self.before[part] & (moved[part] > self.drift)
            count = min(int(far.sum()), self.grow, len(reserve))
            order = torch.where(far, moved[part], -1.0).argsort(descending=True, stable=True)
            source[reserve[:count]] = site.start + order[:count]
            self.away[site.start + order[:count]] = True
            self.open[reserve[:count]] = True
        if bool(self.away.any()):
            self._copy(source)
            rest = self._used(self.before & ~self.away)
            for name, parameter in self.shared().items():
                parameter.copy_(torch.where(old[name] > rest[name], self.anchors[name], parameter))

    def _copy(self, source: Tensor) -> None:
        """Give every unit the weights of unit source[unit], in the network, in the task's norms and in its head."""
        units, own = self.model.units, self.model.private[self.task]
        for name in units.uses:
            copied = [self.shared()[name]] if name in self.shared() else []
            if name in own:  # a norm: its statistics go along
                kin = [tensor for other, tensor in own.items() if layer_of(other) == layer_of(name)]
                copied = [tensor for tensor in kin if tensor.shape == own[name].shape]
            for index in (index for use in axes(units, name) for index in use):
                for tensor in copied:
                    copy_units(tensor, index.to(source.device), source)
        copy_units(self.model.heads[self.task].weight, self._read_by_head().to(source.device)[None], source)

    def _read_by_head(self) -> Tensor:
        """Return the unit that each column of the head reads: of a head a position, the same at all of them."""
        head, features = self.model.heads[self.task], self.model.units.features
        units = head.units_last(features[None])[0].flatten(0, -2) if head.axis is not None else features.reshape(1, -1)
        if bool((units != units[0]).any()):
            raise HatrackError(
                "den copies the units that a head reads, and this network has others at every position of its "
                "features: use another network or another method."
            )
        return units[0]

    # ---- entries and units

    def _used(self, mask: Tensor) -> dict[str, Tensor]:
        """Return, for every shared entry, 1 if it stands between units of `mask` and 0 if not."""
        used = self.model.units.used(mask.float())
        return {name: used.get(name, torch.zeros_like(p)) for name, p in self.shared().items()}

    def _by_unit(self, values: Mapping[str, Tensor]) -> Tensor:
        """‖w_i‖ over all weights into each unit."""
        squares = torch.zeros(self.model.units.size + 2, device=self.model.device)
        for name, value in values.items():
            for rows in written(self.model.units, name) if value.ndim > 1 else []:
                at = rows.to(squares.device).remainder(len(squares))
                squares.index_add_(0, at, value.detach().flatten(1).square().sum(1).to(squares.dtype))
        return squares[: self.model.units.size].sqrt()

    def _reserve(self, site: Site) -> Tensor:
        units = torch.arange(site.start, site.start + site.size, device=self.model.device)
        return units[~self.open[units]]

    def _gates(self) -> Tensor:
        return self.open & ~self.away

    # ---- the step

    def _new_rows(self) -> list[tuple[Tensor, Tensor]]:
        """Return every weight with a mark on the entries into new units."""
        born = torch.cat([self.born, self.born.new_zeros(2)])  # two more: the unit map's "never" and "always"
        return [
            (weight, self.allowed[name] * _column(born[rows.to(born.device)], weight))
            for name, weight in self.shared().items()
            if weight.ndim > 1
            for rows in written(self.model.units, name)
        ]

    def _allowed(self) -> dict[str, Tensor]:
        if self.stage == SELECT:
            return {name: torch.zeros_like(p) for name, p in self.shared().items()}
        if self.stage == RETRAIN:
            return self._used(self.selected)
        if self.stage == SPLIT:
            return self._used(self._gates() & (self.selected | ~self.before))
        all_, rest = self._used(self.open), self._used(self.open & ~self.born)
        return {name: amount - rest[name] for name, amount in all_.items()}

    def loss(self, batch: Batch) -> Tensor:
        loss = self.task_loss(self.model.logits(batch.x, self.task, self._gates()), batch)
        if self.stage == SELECT:
            return loss
        shared = self.shared()
        sizes = [(self.allowed[name] * p).square().sum() for name, p in shared.items()]
        loss = loss + self.l2 / 2 * torch.stack(sizes).sum()
        if self.task == 0:
            return loss
        moves = [(self.old[name] * (p - self.anchors[name])).square().sum() for name, p in shared.items()]
        return loss + self.hold / 2 * torch.stack(moves).sum()

    def after_step(self) -> None:
        super().after_step()
        head = self.model.heads[self.task]
        shared = {} if self.stage == SELECT else self.shared()
        amounts = [self.l1 * self.allowed[name] for name in shared]
        with torch.no_grad():
            shrink([*shared.values(), head.weight], [*amounts, torch.full_like(head.weight, self.l1)])
            for weight, marks in self._groups:
                shrink_rows(weight, marks, self.group)

    def predict(self, x: Tensor, task: int) -> Tensor:
        return self.model.logits(x, task, self.masks[task] if task < len(self.masks) else self._gates())

    # ---- what is known, and memory

    def occupied(self) -> Mapping[str, Tensor]:
        mask = self.open if self.task == len(self.masks) else self.opened
        assert mask is not None
        return self._used(mask)

    def unit_gates(self, task: int) -> Tensor:
        return self.masks[task]


def shrink(tensors: Sequence[Tensor], amounts: Sequence[Tensor]) -> None:
    """w ← sign(w)·max(|w| − amount, 0), in place."""
    sizes = torch._foreach_abs(list(tensors))
    torch._foreach_sub_(sizes, list(amounts))
    torch._foreach_clamp_min_(sizes, 0.0)
    torch._foreach_mul_(sizes, torch._foreach_sign(list(tensors)))
    torch._foreach_copy_(list(tensors), sizes)


def shrink_rows(weight: Tensor, mask: Tensor, amount: float) -> None:
    """w_i ← w_i·max(1 − amount/‖w_i‖, 0) for the entries of each row that `mask` marks, in place."""
    norm = _column(torch.linalg.vector_norm((weight * mask).flatten(1), dim=1), weight)
    factor = torch.clamp_min(1 - amount / torch.where(norm > 0, norm, 1.0), 0.0)
    weight.copy_(torch.where(mask > 0, weight * factor, weight))


def copy_units(tensor: Tensor, index: Tensor, source: Tensor) -> None:
    """Copy entries from unit source[u] to unit u along the axis that `index` numbers with units, in place."""
    if index.numel() == 1:
        return
    axis = tensor.ndim - index.ndim + next(i for i, side in enumerate(index.shape) if side > 1)
    units = index.flatten()
    place = torch.arange(len(units), device=units.device)
    for unit in units[units >= 0].unique().tolist():
        origin = int(source[unit])
        if origin != unit:
            place[units == unit] = place[units == origin]
    tensor.copy_(tensor.index_select(axis, place))


def _column(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *(1,) * (like.ndim - 1))
