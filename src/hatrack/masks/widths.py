"""What becomes longer when a site gets more units: axes of tensors, and which units can only come together.

A site consists of parts, stretches of units that stand at the same axes equally often: mostly one, of attention two
(what queries and keys share, and values). Along an axis each unit of a part has so many places (a channel after a
flatten has a stretch, a hidden unit of an LSTM four rows), so that n more units are n times as many places.

    tie   {part: step, …}   these parts get m times their steps, with one m for all

Groups of a convolution or a norm and heads of attention come as a whole; an axis that serves two sites in turn gives
both the same. Where none of that holds, a part is fixed, and why is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import ceil, lcm
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hatrack.masks.grouped import Grouped, grouped
from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import OFF, ON, STATISTICS, UnitMap, Use, layer_of

HIDDEN = ("weight_ih_l", "weight_hh_l")
# The axes of attention's parameters, from the first on, that are as long as its heads together.
ATTENTION = {
    "in_proj_weight": 2, "q_proj_weight": 2, "k_proj_weight": 1, "v_proj_weight": 1, "out_proj.weight": 2,
}  # fmt: skip
NOT_HERE = -3  # at places that a use of a parameter leaves out


class Part(NamedTuple):
    """Units first … first+size−1, all of one site."""

    site: str
    first: int
    size: int


Tie = dict[Part, int]


@dataclass
class Widths:
    """Places along the axes of tensors: `axes[name][axis]` says how many each unit of a part has there."""

    parts: list[Part]
    axes: dict[str, list[dict[Part, int]]] = field(default_factory=dict)
    ties: list[Tie] = field(default_factory=list)
    fixed: dict[Part, str] = field(default_factory=dict)

    def fix(self, parts: Iterable[Part], why: str) -> None:
        """Put down that parts stay as they are; the first reason counts."""
        for part in parts:
            self.fixed.setdefault(part, why)

    def longer(self, tensors: Mapping[str, Tensor], more: Mapping[Part, int]) -> dict[str, torch.Size]:
        """Return the shapes of all tensors that change when parts get so many more units."""
        found = {}
        for name, axes in self.axes.items():
            added = [sum(each * more.get(part, 0) for part, each in axis.items()) for axis in axes]
            if any(added):
                found[name] = torch.Size(n + extra for n, extra in zip(tensors[name].shape, added, strict=True))
        return found

    def together(self, parts: Sequence[Part]) -> list[Tie]:
        """Return what grows together, with its smallest steps; what is fixed is left out, and so is what it ties."""
        todo, groups = list(parts), []
        while todo:
            share: dict[Part, Fraction] = {todo[0]: Fraction(1)}
            times: list[Fraction] = []
            consistent, waiting = True, list(self.ties)
            while met := next((tie for tie in waiting if tie.keys() & share.keys()), None):
                waiting.remove(met)
                m = next(share[part] / step for part, step in met.items() if part in share)
                times.append(m)
                for part, step in met.items():
                    consistent &= share.setdefault(part, m * step) == m * step
            todo = [part for part in todo if part not in share]
            scale = lcm(*(value.denominator for value in (*share.values(), *times)))
            why = next((self.fixed[part] for part in share if part in self.fixed), None)
            if why is not None or not consistent:
                self.fix(share, why or "the layers that it is tied to have other widths")
            else:
                groups.append({part: int(value * scale) for part, value in share.items()})
        return groups


def at_least(group: Tie, wanted: Mapping[Part, int]) -> Tie:
    """Return the least growth of a group that gives each part what is wanted."""
    times = max(ceil(wanted.get(part, 0) / step) for part, step in group.items())
    return {part: times * step for part, step in group.items()}


# ---- found from the unit map


def widths(net: nn.Module, units: UnitMap) -> Widths:
    """Return where the units of a network stand along the axes of its tensors."""
    in_groups = {layer.parameter: layer for layer in grouped(net, units)}
    shapes: dict[str, torch.Size] = {}
    standing: dict[tuple[str, int], Tensor] = {}  # the unit at every place of an axis, a row a use
    odd: list[tuple[Tensor, str]] = []
    for name, shape, uses in _used(net, units):
        shapes[name] = shape
        if name in in_groups:
            standing[name, 0] = in_groups[name].rows.reshape(1, -1)
            continue
        rows, mixed = _standing(uses, shape)
        standing |= {(name, axis): each for axis, each in enumerate(rows)}
        odd.append((mixed, f"{name} has no axis for its units"))
    found = Widths(_parts(units, list(standing.values())))
    of = {unit: part for part in found.parts for unit in range(part.first, part.first + part.size)}
    for met, why in odd:
        found.fix((of[u] for u in met.tolist()), why)
    for name, shape in shapes.items():
        found.axes[name] = [_axis(found, name, standing.get((name, axis)), of) for axis in range(len(shape))]
    for layer in in_groups.values():
        _tie_groups(found, layer, of)
    _tie_layers(net, found)
    return found


def _used(net: nn.Module, units: UnitMap) -> Iterator[tuple[str, torch.Size, list[Use]]]:
    """Yield the tensors at whose entries units stand: parameters, and statistics of norms."""
    for name, uses in units.uses.items():
        yield name, units.shapes[name], uses
    buffers = dict(net.named_buffers())
    for layer, channels in units.statistics.items():
        for name in (f"{layer}.{statistic}" if layer else statistic for statistic in STATISTICS):
            if name in buffers:
                yield name, buffers[name].shape, [Use((channels,))]


def _standing(uses: list[Use], shape: torch.Size) -> tuple[list[Tensor], Tensor]:
    """Return the unit at every place along each axis, use by use, and units that stand along no axis or several."""
    rows = [torch.full((len(uses), size), ON) for size in shape]
    mixed: list[Tensor] = []
    for i, use in enumerate(uses):
        patterns = [ids.cpu().reshape((1,) * (len(shape) - ids.ndim) + tuple(ids.shape)) for ids in use.units]
        off = patterns[0] == OFF
        left_out = [off.movedim(a, 0).reshape(off.shape[a], -1).all(1).expand(size) for a, size in enumerate(shape)]
        here = [(~out).nonzero().flatten() for out in left_out]
        for ids in patterns:
            for axis, index in enumerate(here):  # the rest says nothing of this use
                ids = ids.index_select(axis, index) if ids.shape[axis] > 1 else ids
            ids = compact(ids)
            long = [axis for axis, size in enumerate(ids.shape) if size > 1]
            if len(long) == 1:
                (axis,) = long
                found = torch.full((shape[axis],), ON).index_copy(0, here[axis], ids.flatten())
                rows[axis][i] = torch.where(found >= 0, found, rows[axis][i])
            else:
                mixed.append(ids.unique())
        for axis, out in enumerate(left_out):
            rows[axis][i][out] = NOT_HERE
    met = torch.cat(mixed).unique() if mixed else torch.zeros(0, dtype=torch.long)
    return rows, met[met >= 0]


def _parts(units: UnitMap, standing: list[Tensor]) -> list[Part]:
    """Cut sites where the numbers of places change that their units have, axis by axis and use by use."""
    counts = [torch.bincount(row[row >= 0], minlength=units.size) for rows in standing for row in rows]
    table = torch.stack(counts, 1) if counts else torch.zeros(units.size, 0)
    found = []
    for site in units.sites:
        own = table[site.start : site.start + site.size]
        cuts = (own[1:] != own[:-1]).any(1).nonzero().flatten() + 1
        edges = [0, *cuts.tolist(), site.size]
        found += [Part(site.name, site.start + a, b - a) for a, b in pairwise(edges)]
    return found


def _axis(found: Widths, name: str, rows: Tensor | None, of: Mapping[int, Part]) -> dict[Part, int]:
    """Return how many places each unit of a part has along an axis; parts that take turns at its places are tied."""
    result: dict[Part, int] = {}
    if rows is None:
        return result
    rows = rows.unique(dim=0)
    for places in rows.t().unique(dim=0):
        met = list(dict.fromkeys(of[u] for u in places.tolist() if u >= 0))
        if met and bool((places == ON).any()):
            found.fix(met, f"{name} serves its units and what is always on at one place")
        if len(met) > 1 and dict.fromkeys(met, 1) not in found.ties:
            found.ties.append(dict.fromkeys(met, 1))
    counted: set[Part] = set()
    for part in dict.fromkeys(of[u] for u in rows.unique().tolist() if u >= 0):
        if part not in counted:
            at = ((rows >= part.first) & (rows < part.first + part.size)).any(0)
            counted |= {of[u] for u in rows[:, at].unique().tolist() if u >= 0}
            result[part] = int(at.sum()) // part.size
    return result


# ---- what comes as a whole


def _tie_groups(found: Widths, layer: Grouped, of: Mapping[int, Part]) -> None:
    """Tie what a convolution in groups reads to what it writes, group by group."""
    steps: Tie = {}
    met: set[Part] = set()
    whole = True
    for side in (layer.rows, layer.columns):
        parts = {of[u] for u in side.flatten().tolist() if u >= 0}
        met |= parts
        whole &= len(parts) == 1 and side.numel() == len(side.unique()) == next(iter(parts)).size
        steps |= dict.fromkeys(parts, side.shape[1])
    if whole:
        found.ties.append(steps)
    else:
        found.fix(met, f"the groups of {layer_of(layer.parameter)} are not all of one site's units")


def _tie_layers(net: nn.Module, found: Widths) -> None:
    """Tie what layers hold to one width: attention its heads, recurrent layers their states, norms their groups."""
    for path, layer in net.named_modules():
        prefix = f"{path}." if path else ""
        own = {n.removeprefix(prefix): axes for n, axes in found.axes.items() if n.startswith(prefix)}
        if isinstance(layer, nn.MultiheadAttention):
            sides = [axis for n, both in own.items() if n in ATTENTION for axis in both[: ATTENTION[n]]]
            _tie(found, sides, layer.head_dim, f"{path} has heads that meet what has a fixed width")
        elif isinstance(layer, nn.RNNBase):
            sides = [both[0] for n, both in own.items() if n.startswith(HIDDEN)]
            _tie(found, sides, 1, f"{path} has states that are no units")
        elif isinstance(layer, nn.GroupNorm) and layer.num_groups > 1 and "weight" in own:
            (side,) = own["weight"]
            one = len(side) == 1
            _tie(
                found,
                [side if one else {}, side],
                layer.num_channels // layer.num_groups,
                f"{path} has groups of several",
            )


def _tie(found: Widths, sides: list[dict[Part, int]], step: int, why: str) -> None:
    parts = {part for side in sides for part in side}
    if all(sides):
        found.ties.append(dict.fromkeys(parts, step))
    else:
        found.fix(parts, why)
