"""Which sites of a network can be widened, found by trying; and the values that it has then.

All that is asked for is tried at once, on a copy. Where that does not run, or is another network, each group of sites
is tried by itself, then with heads of attention as a whole, and what bears it is widened together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hatrack.errors import HatrackError, one_line
from hatrack.features import Features
from hatrack.masks.check import correct
from hatrack.masks.trace import derive
from hatrack.masks.unitmap import UnitMap
from hatrack.masks.widen import Fixed, Places, fill, observing, places, resize
from hatrack.masks.widths import Part, Tie, at_least, widths
from hatrack.modes import evaluating, untouched
from hatrack.nets.drawn import drawn
from hatrack.swap import copied

if TYPE_CHECKING:
    from hatrack.nets.model import Model

MOST_HEADS = 64


@dataclass(frozen=True)
class Plan:
    """A wider network: how many units every site gets, all tensors that change, the map and where the old ones stand.

    `left`: sites that were asked for and stay as they are, and why.
    """

    more: dict[Part, int]
    counts: list[int]  # how many units each part of the network gets
    tensors: dict[str, Tensor]
    units: UnitMap
    places: Places
    left: dict[str, str] = field(default_factory=dict)

    added: int = 0  # parameters

    @property
    def sites(self) -> dict[str, int]:
        """How many units every site gets."""
        found: dict[str, int] = {}
        for part, count in self.more.items():
            found[part.site] = found.get(part.site, 0) + count
        return found


class Widening:
    """Tries to widen the network of a model."""

    def __init__(self, model: Model, seed: int) -> None:
        self._model, self._seed = model, seed
        self._widths = widths(model.net, model.units)

    def plan(self, wanted: Mapping[str, int]) -> Plan:
        """Return how to widen sites by at least so many units; raise where none of them can be."""
        sizes = {site.name: site.size for site in self._model.units.sites}
        asked = {p: ceil(wanted[p.site] * p.size / sizes[p.site]) for p in self._widths.parts if wanted.get(p.site)}
        groups = self._widths.together(list(asked))
        steps = [at_least(group, asked) for group in groups]
        found = self._all(steps)
        if found is None:
            steps = self._bearing(steps, asked)
            found = self._all(steps) or self._one_by_one(steps)
        left: dict[str, str] = {}
        for part in asked:
            if part in self._widths.fixed:
                left.setdefault(part.site, self._widths.fixed[part])
        if found is None:
            said = "; ".join(f"{site}: {why}" for site, why in left.items())
            raise HatrackError(f"{type(self._model.net).__name__} cannot be widened at any site asked for ({said}).")
        return replace(found, left=left)

    def exactly(self, more: Sequence[int]) -> Plan:
        """Return how to widen every part by so many units, which has been found out before."""
        try:
            return self._tried(dict(zip(self._widths.parts, more, strict=True)))
        except (Fixed, ValueError) as error:
            raise HatrackError(
                f"{type(self._model.net).__name__} cannot be widened as it was when it was saved ({one_line(error)}); "
                f"build the same network."
            ) from None

    def _all(self, groups: list[Tie]) -> Plan | None:
        """Return the widening of all these groups; None where that cannot be."""
        more = {part: count for group in groups for part, count in group.items()}
        if not more:
            return None
        try:
            return self._tried(more)
        except Fixed as error:
            if len(groups) == 1:
                self._widths.fix(more, str(error))
            return None

    def _bearing(self, steps: list[Tie], asked: Mapping[Part, int]) -> list[Tie]:
        """Return the groups that can be widened by themselves, or with a neighbour by whole heads."""
        bearing: list[Tie] = []
        odd: list[Tie] = []
        for step in steps:
            (bearing if self._all([step]) else odd).append(step)
        for several in [[group] for group in odd] + [list(pair) for pair in pairwise(odd)]:
            if any(group not in odd for group in several):
                continue
            found = next((tried for tried in _by_heads(several, asked) if self._all([tried])), None)
            if found is not None:
                bearing.append(found)
                odd = [group for group in odd if group not in several]
        for part in (part for group in bearing for part in group):
            self._widths.fixed.pop(part, None)
        return bearing

    def _one_by_one(self, groups: list[Tie]) -> Plan | None:
        """Return the widening of as many groups as bear it together."""
        found: Plan | None = None
        taken: list[Tie] = []
        for group in groups:
            plan = self._all([*taken, group])
            if plan is None:
                self._widths.fix(group, "it cannot be widened together with the other sites")
            else:
                found, taken = plan, [*taken, group]
        return found

    def _tried(self, more: dict[Part, int]) -> Plan:
        """Return a widening that runs, and that is the old network where its new units are taken out; else raise."""
        model, own = self._model, self._model.tensors()
        net = copied(model.net)
        shapes = self._widths.longer(own, more)
        resize(net, shapes)
        new = drawn(net, list(shapes), model.initial, self._seed)
        fill(net, new)
        picked = Features(net, model.picked.pick)
        try:
            with evaluating(net), torch.no_grad(), observing(net), untouched(net):
                picked(model.example)
            with picked.as_output():
                units = derive(net, model.example)
        except Exception as error:  # whatever a forward() says to more units than it was written for
            raise Fixed(one_line(error)) from error
        correct(units, [name for name in model.corrections() if name not in units.corrected])
        found = places(model.units, units, self._widths.parts, more)
        if {name: list(shape) for name, shape in shapes.items()} != {n: list(new[n].shape) for n in found.kept}:
            raise Fixed("other tensors would have to grow than can")
        counts = [more.get(part, 0) for part in self._widths.parts]
        grown = sum(new[n].numel() - p.numel() for n, p in model.net.named_parameters() if n in new)
        return Plan(more, counts, {n: v.to(own[n]) for n, v in new.items()}, units, found, added=grown)


def _by_heads(groups: list[Tie], asked: Mapping[Part, int]) -> Iterator[Tie]:
    """Yield what these parts would get if they consisted of so many heads each, the most heads first."""
    parts = [part for group in groups for part in group]
    share = max(asked.get(part, 0) / part.size for part in parts)
    for heads in range(min(MOST_HEADS, *(part.size for part in parts)), 0, -1):
        if all(part.size % heads == 0 for part in parts):
            yield {part: part.size // heads * ceil(share * heads) for part in parts}
