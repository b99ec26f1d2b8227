"""What the walk writes down: which units every parameter entry serves, which parameters carry gates, and notes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from hatrack.masks.abstract_value import NOTHING, Held, Value
from hatrack.masks.union_find import ALWAYS_ON, UnionFind, compact
from hatrack.masks.unitmap import Note

NO_UNITS = torch.zeros(0, dtype=torch.long)
UNUSED = -1  # at entries of a parameter that a use leaves out


@dataclass(eq=False)
class ParameterUse:
    """One use of a parameter, in the parameter's own layout (all tensors broadcast to its shape).

    units    what must be on for an entry to matter; UNUSED in the first where this use leaves an entry out
    written  the unit that an entry helps to write, where that is so
    gates    the units by whose gates the parameter itself is multiplied: on the side it reads ("input"), for layers
             whose input no hook reaches, and on the side it writes ("output"), for values that a bare function reads
    """

    parameter: str
    units: tuple[Tensor, ...]
    written: Tensor | None = None
    gates: dict[str, Tensor] = field(default_factory=dict)


Uses: TypeAlias = tuple[ParameterUse, ...]  # one for each parameter that a value is computed from


def writers(*by: Uses) -> frozenset[ParameterUse]:
    """Return all these uses if each writes units that are known, else none: a gate on some would not be enough."""
    uses = [use for each in by for use in each]
    return frozenset(uses) if all(by) and all(use.written is not None for use in uses) else frozenset()


class Recorder:
    """Collects the uses of parameters in forward order."""

    def __init__(self, shapes: Mapping[str, torch.Size], trained: Collection[str]) -> None:
        self.shapes = dict(shapes)
        self.trained = frozenset(trained)
        self.unions = UnionFind()
        self.uses: dict[str, list[ParameterUse]] = {}
        self.norms: dict[str, str] = {}
        self.statistics: dict[str, Tensor] = {}
        self.notes: list[Note] = []
        # Positions of a parameter that acts entry by entry, and the units that meet there. Which units are the same may
        # only turn out later, so this is settled when the walk is over.
        self._elementwise: list[tuple[ParameterUse, Held, Tensor, Tensor]] = []
        self._parameter_units: dict[tuple[str, bool], tuple[Tensor, ParameterUse]] = {}
        self._written: dict[bool, list[Tensor]] = {True: [], False: []}  # units, by whether what writes them is trained
        self._explained = NO_UNITS

    def note(self, where: str, what: str) -> None:
        """Put down something that was handled conservatively."""
        self.notes.append(Note(where, what))

    # ---- units

    def fresh(self, writer: str, count: int, weight: Value) -> Tensor:
        """Return new units, written by a weight."""
        units = self.unions.fresh(writer, count)
        if weight.held:
            self._written[any(held.name in self.trained for held in weight.held)].append(units)
        return units

    def parameter_units(self, held: Held) -> tuple[Tensor, ParameterUse]:
        """Return units of a parameter that is used as data (a class token), one a group of entries, and their use."""
        key = (held.name, held.scaled)
        if held.groups is None and key in self._parameter_units:  # wherever it is used, it is one thing
            return self._parameter_units[key]
        shape = self.shapes[held.name]
        units = self.fresh(held.name, held.count, Value(shape, held=(held,)))
        own = (units if held.groups is None else units[held.groups]).view(shape)
        written = own if held.scaled and held.groups is None else None
        found = units, self._add(ParameterUse(held.name, (own,), written))
        if held.groups is None:
            self._parameter_units[key] = found
        return found

    # ---- uses

    def use(self, value: Value, units: tuple[Tensor, ...], written: Tensor | None = None) -> Uses:
        """Put down a use of the parameters in a value; `units` and `written` broadcast to the value's shape."""
        uses = []
        for held in value.held:
            laid = (self._lay(held, value.shape, ids, UNUSED if i == 0 else ALWAYS_ON) for i, ids in enumerate(units))
            pattern = None if written is None else self.pattern(held, value.shape, written)
            uses.append(self._add(ParameterUse(held.name, tuple(ids for ids, _ in laid), pattern)))
        return tuple(uses)

    def pattern(self, held: Held, shape: torch.Size, ids: Tensor) -> Tensor | None:
        """Return ids in the layout of a value's parameter, if a gate there is the same as a gate on the value."""
        if not held.scaled:
            return None
        laid, several = self._lay(held, shape, ids, ALWAYS_ON)
        return None if several else laid

    def _lay(self, held: Held, shape: torch.Size, ids: Tensor, elsewhere: int) -> tuple[Tensor, bool]:
        """Bring ids from the layout of a value to that of its parameter; whether an entry meets several units."""
        if held.pos is None and held.groups is None:
            return ids, False
        positions = held.positions(shape)
        if held.groups is None:
            turned = _turned(positions, ids, self.shapes[held.name])
            if turned is not None:
                return turned, False
        found, several = self._gather(held, positions, ids.expand(shape))
        return compact(torch.where(found == UNUSED, elsewhere, found)), several

    def use_elementwise(self, value: Value, ids: Tensor) -> Uses:
        """Put down that each entry of a value's parameters acts on the unit at its place; shapes broadcast."""
        uses = []
        for held in value.held:
            positions = held.positions(value.shape).expand(ids.shape)
            one, several = self._gather(held, positions, ids)
            written = one.clamp_min(ALWAYS_ON) if held.scaled and not several else None
            uses.append(self._add(ParameterUse(held.name, (one,), written)))
            self._elementwise.append((uses[-1], held, positions, ids))
        return tuple(uses)

    def freeze(self, value: Value, why: str) -> None:
        """Put down that parameters are used in a way that leaves no entry free after the first task."""
        for name in dict.fromkeys(held.name for held in value.held):
            self._add(ParameterUse(name, (torch.zeros(1, dtype=torch.long),)))
            if name in self.trained:
                self.note(name, f"is frozen after the first task: {why}")

    def _add(self, use: ParameterUse) -> ParameterUse:
        self.uses.setdefault(use.parameter, []).append(use)
        return use

    def _gather(self, held: Held, positions: Tensor, ids: Tensor) -> tuple[Tensor, bool]:
        """Return the one unit that each entry of a parameter meets, and whether any entry meets several.

        An entry that meets several counts as always on, one that meets none as unused.
        """
        shape, groups = self.shapes[held.name], held.groups
        positions, units = torch.broadcast_tensors(compact(positions), self.unions.roots(compact(ids)))
        at, units = positions.reshape(-1), units.reshape(-1)
        if bool((at == NOTHING).any()):
            at, units = at[at != NOTHING], units[at != NOTHING]
        low = torch.full((held.count,), torch.iinfo(torch.long).max).scatter_reduce_(0, at, units, "amin")
        high = torch.full((held.count,), UNUSED).scatter_reduce_(0, at, units, "amax")
        several = (low != high) & (high != UNUSED)
        found = torch.where(several, ALWAYS_ON, high)
        return (found if groups is None else found[groups]).view(shape), bool(several.any())

    # ---- when the walk is over

    def settle(self) -> dict[str, list[Tensor]]:
        """Decide what had to wait, and return the units by whose gates each parameter is multiplied."""
        own = self._of_untrained()
        self._explained = torch.cat([self._explained, *self._written[False], self._alive(own)])
        self.unions.pin(own)
        gates = {name: found for name in self.uses if (found := self._parameter_gates(name))}
        for use, held, positions, ids in self._elementwise:
            one, several = self._gather(held, positions, ids)
            use.units = (one,)
            if held.name not in self.trained:
                continue
            if several:
                self.note(held.name, "is frozen after the first task: one entry serves several units")
            elif not bool((compact(ids) != ALWAYS_ON).any()):
                self.note(held.name, "is frozen after the first task: it acts on values that belong to no unit")
        self._note_pinned()
        return gates

    def _of_untrained(self) -> Tensor:
        """Return the units that layers which are not trained write, and have for themselves: no task may close them.

        That is all but those between such a layer and trained ones alone.
        """
        written = {trained: self.unions.live(torch.cat([NO_UNITS, *units])) for trained, units in self._written.items()}
        if not len(written[False]):
            return NO_UNITS
        read: dict[bool, list[Tensor]] = {True: [NO_UNITS], False: [NO_UNITS]}
        for name, uses in self.uses.items():
            for use in uses:
                read[name in self.trained] += [self.unions.live(ids.clamp_min(ALWAYS_ON)) for ids in use.units[1:]]
        by = {trained: torch.isin(written[False], torch.cat(units)) for trained, units in read.items()}
        return written[False][torch.isin(written[False], written[True]) | by[False] | ~by[True]]

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
        """Return one gate pattern a side; a parameter has one value, so all its uses must agree on its gate.

        Where they do not, the units concerned are made one; a use that wants no gate pins them.
        """
        found = []
        for side in ("input", "output"):
            wishes = [use.gates[side].reshape(-1) for use in self.uses[name] if side in use.gates]
            if not wishes:
                continue
            alive = self._alive(torch.cat(wishes))
            agreed = torch.full((1,), UNUSED)
            for use in self.uses[name]:
                wanted = use.gates.get(side, torch.zeros(1, dtype=torch.long))
                wanted = torch.where(use.units[0] == UNUSED, UNUSED, wanted)
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
    if any(p == 1 and i > 1 for p, i in zip(pos.shape, ids.shape, strict=True)):
        return None
    order = sorted(range(pos.ndim), key=lambda a: -strides[a] if pos.shape[a] > 1 else 1)  # those of length 1 last
    flat, turned = pos.permute(order), ids.permute(order)
    long = [axis for axis, size in enumerate(shape) if size > 1]
    if [size for size in flat.shape if size > 1] != [shape[axis] for axis in long]:
        return None
    if not torch.equal(flat.reshape(-1), torch.arange(shape.numel())):
        return None
    sizes = dict(zip(long, turned.shape, strict=False))
    return turned.reshape([sizes.get(axis, 1) for axis in range(len(shape))])
