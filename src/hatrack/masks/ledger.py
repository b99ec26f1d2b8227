"""What the walk writes down: which units every parameter entry serves, which parameters carry gates, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hatrack.masks.unions import ALWAYS_ON, Unions, compact
from hatrack.masks.unitmap import Note
from hatrack.masks.values import Value

UNUSED = -1  # at entries of a parameter that an occasion does not use


@dataclass(eq=False)
class Occasion:
    """One use of a parameter, in the parameter's own layout (all tensors broadcast to its shape).

    units    what must be on for an entry to matter; UNUSED in the first where this occasion leaves an entry out
    written  the unit that an entry helps to write, where that is so
    gates    the units by whose gates the parameter itself is multiplied: on the side it reads ("input"), for layers
             whose input no hook reaches, and on the side it writes ("output"), for values that a bare function reads
    """

    parameter: str
    units: tuple[Tensor, ...]
    written: Tensor | None = None
    gates: dict[str, Tensor] = field(default_factory=dict)


@dataclass(eq=False)
class Meeting:
    """A parameter that acts entry by entry: the positions and the units that meet there.

    Which units are the same may only turn out later, so this is settled when the walk is over.
    """

    occasion: Occasion
    positions: Tensor
    ids: Tensor


class Ledger:
    """Collects occasions in forward order."""

    def __init__(self, shapes: Mapping[str, torch.Size]) -> None:
        self.shapes = dict(shapes)
        self.unions = Unions()
        self.occasions: dict[str, list[Occasion]] = {}
        self.norms: dict[str, str] = {}
        self.notes: list[Note] = []
        self._meetings: list[Meeting] = []
        self._explained = torch.zeros(0, dtype=torch.long)

    def note(self, where: str, what: str) -> None:
        """Put down something that was handled conservatively."""
        self.notes.append(Note(where, what))

    # ---- uses

    def use(self, value: Value | None, units: tuple[Tensor, ...], written: Tensor | None = None) -> Occasion | None:
        """Put down a use of a parameter; `units` and `written` broadcast to the value's shape. None if it is none."""
        if value is None or value.param is None:
            return None
        laid = tuple(self._lay(value, ids, UNUSED if i == 0 else ALWAYS_ON)[0] for i, ids in enumerate(units))
        occasion = self._add(Occasion(value.param, laid))
        if written is not None:
            occasion.written = self.pattern(value, written)
        return occasion

    def pattern(self, value: Value, ids: Tensor) -> Tensor | None:
        """Return ids in the layout of a value's parameter, if a gate there is the same as a gate on the value."""
        laid, several = self._lay(value, ids, ALWAYS_ON)
        return laid if value.scaled and not several else None

    def _lay(self, value: Value, ids: Tensor, elsewhere: int) -> tuple[Tensor, bool]:
        """Bring ids from the layout of a value to that of its parameter; whether an entry meets several units."""
        assert value.param is not None
        if value.pos is None:
            return ids, False
        turned = _turned(value.pos, ids, self.shapes[value.param])
        if turned is not None:
            return turned, False
        found, several = self._gather(value.param, value.pos, ids.expand(value.shape))
        return compact(torch.where(found == UNUSED, elsewhere, found)), several

    def meet(self, value: Value, ids: Tensor) -> Occasion | None:
        """Put down that each entry of a parameter acts on the unit at its place; shapes broadcast."""
        if value.param is None:
            return None
        positions = value.positions().expand(ids.shape)
        one, several = self._gather(value.param, positions, ids)
        written = one.clamp_min(ALWAYS_ON) if value.scaled and not several else None
        occasion = self._add(Occasion(value.param, (one,), written))
        self._meetings.append(Meeting(occasion, positions, ids))
        return occasion

    def freeze(self, value: Value | None, why: str) -> None:
        """Put down that a parameter is used in a way that leaves no entry free after the first task."""
        if value is not None and value.param is not None:
            self._add(Occasion(value.param, (torch.zeros(1, dtype=torch.long),)))
            self.note(value.param, f"is frozen after the first task: {why}")

    def _add(self, occasion: Occasion) -> Occasion:
        self.occasions.setdefault(occasion.parameter, []).append(occasion)
        return occasion

    def _gather(self, name: str, positions: Tensor, ids: Tensor) -> tuple[Tensor, bool]:
        """Return the one unit that each entry of a parameter meets, and whether any entry meets several.

        An entry that meets several counts as always on, one that meets none as unused.
        """
        shape = self.shapes[name]
        positions, units = torch.broadcast_tensors(compact(positions), self.unions.roots(compact(ids)))
        at, units = positions.reshape(-1), units.reshape(-1)
        low = torch.full((shape.numel(),), torch.iinfo(torch.long).max).scatter_reduce_(0, at, units, "amin")
        high = torch.full((shape.numel(),), UNUSED).scatter_reduce_(0, at, units, "amax")
        several = (low != high) & (high != UNUSED)
        return torch.where(several, ALWAYS_ON, high).view(shape), bool(several.any())

    # ---- when the walk is over

    def settle(self) -> dict[str, list[Tensor]]:
        """Decide what had to wait, and return the units by whose gates each parameter is multiplied."""
        gates = {name: found for name in self.occasions if (found := self._parameter_gates(name))}
        for meeting in self._meetings:
            name = meeting.occasion.parameter
            one, several = self._gather(name, meeting.positions, meeting.ids)
            meeting.occasion.units = (one,)
            if several:
                self.note(name, "is frozen after the first task: one entry serves several units")
            elif not bool((compact(meeting.ids) != ALWAYS_ON).any()):
                self.note(name, "is frozen after the first task: it acts on values that belong to no unit")
        self._note_pinned()
        return gates

    def pin(self, ids: Tensor, where: str, why: str) -> None:
        """Keep units on for every task, and say why."""
        alive = self._alive(ids)
        self.unions.pin(ids)
        self._explain(alive, where, f"{why}: the units it reads stay on for every task")

    def _alive(self, ids: Tensor) -> Tensor:
        """Return the unit numbers that are now one with any of `ids` and not pinned."""
        every = self.unions.everything()
        return every[torch.isin(self.unions.roots(every), self.unions.live(ids))]

    def _explain(self, alive: Tensor, where: str, what: str) -> None:
        """Put down a note if some of the units that were alive are pinned now."""
        pinned = alive[self.unions.roots(alive) == ALWAYS_ON]
        if len(pinned):
            self.note(where, what)
            self._explained = torch.cat([self._explained, pinned])

    def _note_pinned(self) -> None:
        """Name the writers of units that came to be pinned by the company they keep."""
        for writer, first, count in self.unions.births:
            units = torch.arange(first, first + count)
            pinned = units[self.unions.roots(units) == ALWAYS_ON]
            rest = int((~torch.isin(pinned, self._explained)).sum())
            if rest:
                self.note(writer, f"writes {rest} units that meet what is always on: they stay on for every task")

    def _parameter_gates(self, name: str) -> list[Tensor]:
        """Return one gate pattern a side; a parameter has one value, so all its occasions must agree on its gate.

        Where they do not, the units concerned are made one; an occasion that wants no gate pins them.
        """
        occasions = self.occasions[name]
        found = []
        for side in ("input", "output"):
            wishes = [occasion.gates[side].reshape(-1) for occasion in occasions if side in occasion.gates]
            if not wishes:
                continue
            alive = self._alive(torch.cat(wishes))
            agreed = torch.full((1,), UNUSED)
            for occasion in occasions:
                wanted = occasion.gates.get(side, torch.zeros(1, dtype=torch.long))
                wanted = torch.where(occasion.units[0] == UNUSED, UNUSED, wanted)
                here, there = torch.broadcast_tensors(agreed, wanted)
                both = (here != UNUSED) & (there != UNUSED)
                self.unions.merge(here[both], there[both])
                agreed = torch.where(here == UNUSED, there, here)
            why = "serves at several places and cannot be gated at all of them: its units stay on for every task"
            self._explain(alive, name, why)
            found.append(agreed.clamp_min(ALWAYS_ON))
        return found


def _turned(pos: Tensor, ids: Tensor, shape: torch.Size) -> Tensor | None:
    """Return ids in the layout of a parameter that was only turned (a transposed weight), without writing them out.

    None where more was done to it, or where an entry meets more than one place of `ids`.
    """
    ids = ids.view(*(1,) * (pos.ndim - ids.ndim), *ids.shape)
    strides = pos.stride()
    for axis in range(pos.ndim):
        if strides[axis] == 0:
            pos = pos.narrow(axis, 0, 1)
    if any(pos.shape[axis] == 1 and ids.shape[axis] > 1 for axis in range(pos.ndim)):
        return None
    order = sorted((a for a in range(pos.ndim) if pos.shape[a] > 1), key=lambda a: -strides[a])
    long = [axis for axis, size in enumerate(shape) if size > 1]
    if [pos.shape[a] for a in order] != [shape[a] for a in long]:
        return None
    order += [a for a in range(pos.ndim) if a not in order]
    if not torch.equal(pos.permute(order).reshape(-1), torch.arange(shape.numel())):
        return None
    turned = ids.permute(order)
    sizes = dict(zip(long, turned.shape, strict=False))
    return turned.reshape([sizes.get(axis, 1) for axis in range(len(shape))])
