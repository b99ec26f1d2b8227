"""Convolutions in groups (depthwise ones among them): what may go is the same number of units in every group.

A group goes as a whole with all that it reads and writes. Of the others each keeps as many inputs as the others, and as
many outputs: where fewer of its units are open, closed ones stay to make up the number. The layers and directions of an
RNN, whose states have one size, are groups as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from hatrack.masks.unitmap import Site, UnitMap


@dataclass(frozen=True)
class Grouped:
    """The units of a weight's rows and columns, group by group; a transposed convolution's rows are its inputs."""

    parameter: str
    rows: Tensor
    columns: Tensor

    def cut(self, weight: Tensor, gone: Tensor) -> tuple[Tensor, int]:
        """Return the weight without these units, and how many groups are left."""
        ends = torch.cat([gone, gone.new_tensor([True, False])])
        blocks = weight.unflatten(0, (len(self.rows), -1))
        stay = [(b, ~ends[r], ~ends[c]) for b, r, c in zip(blocks, self.rows, self.columns, strict=True)]
        left = [b[r.to(b.device)][:, c.to(b.device)] for b, r, c in stay if bool(r.any() or c.any())]
        return torch.cat(left), len(left)

    def alive(self, gone: Tensor) -> Tensor:
        """Return which groups have a row or a column left."""
        ends = torch.cat([gone, gone.new_tensor([True, False])])
        return ~(ends[self.rows].all(1) & ends[self.columns].all(1))

    def uneven(self, gone: Tensor) -> Iterator[Tensor]:
        """Yield units that must stay so that groups keep equal numbers."""
        ends, alive = torch.cat([gone, gone.new_tensor([True, False])]), self.alive(gone)
        for units in (self.rows[alive], self.columns[alive]):
            away = ends[units]
            most = max(1, int((~away).sum(1).max())) if len(units) else 0
            for of_group, out in zip(units, away, strict=True):
                yield of_group[out][: max(0, most - int((~out).sum()))]


def grouped(net: nn.Module, units: UnitMap) -> list[Grouped]:
    """Return the convolutions in groups of a network."""
    found = []
    for path, layer in net.named_modules():
        name = f"{path}.weight" if path else "weight"
        uses = units.uses.get(name, [])
        if not isinstance(layer, _ConvNd) or layer.groups == 1 or len(uses) != 1 or len(uses[0].units) != 2:
            continue
        shape, (written, read) = units.shapes[name][:2], uses[0].units
        by_entry = (ids.cpu().flatten(2)[..., 0].expand(shape) for ids in (written, read))
        written, read = by_entry if not isinstance(layer, _ConvTransposeNd) else reversed(list(by_entry))
        each = shape[0] // layer.groups
        found.append(Grouped(name, written[:, 0].reshape(layer.groups, each), read[::each]))
    return found


def recurrent(net: nn.Module, units: UnitMap) -> list[Grouped]:
    """Return the RNNs of several layers or directions; a group is the units of one's state."""
    found = []
    for path, layer in net.named_modules():
        if isinstance(layer, nn.RNNBase) and not layer.proj_size:
            own = [name for name, _ in layer.named_parameters(recurse=False) if name.startswith("weight_hh")]
            names = [f"{path}.{name}" if path else name for name in own]
            uses = [use for name in names for use in units.uses.get(name, [])]
            if len(uses) == len(names) > 1 and all(len(use.units) == 2 for use in uses):
                states = torch.stack([use.units[1].flatten().cpu() for use in uses])
                found.append(Grouped(names[0], states, states))
    return found


def balanced(layers: list[Grouped], gone: Tensor) -> Tensor:
    """Return as many of the units in `gone` as can go without leaving groups uneven."""
    while True:
        stay = [units for layer in layers for units in layer.uneven(gone) if len(units)]
        if not stay:
            return gone
        gone = gone.clone()
        gone[torch.cat(stay)] = False


def coupled(layers: list[Grouped], units: UnitMap, sites: list[Site]) -> list[list[Site]]:
    """Return sites that can only be cut together, for a layer in groups has units of both."""
    found = [[site] for site in sites]
    for layer in layers:
        met = {int(unit) for unit in torch.cat([layer.rows.flatten(), layer.columns.flatten()])}
        meet = [part for part in found if any(met & set(range(s.start, s.start + s.size)) for s in part)]
        found = [part for part in found if part not in meet] + [list(chain(*meet))]
    return found
