"""Units as the nodes of a graph: which unit each row of a weight writes, and which unit each of its columns reads."""

from __future__ import annotations

from torch import Tensor

from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import UnitMap


def written(units: UnitMap, name: str) -> list[Tensor]:
    """Return, for every use of a weight, the unit that each of its rows writes; no use, no entry."""
    shape = units.shapes[name]
    return _along(units, name, (shape[0], *(1,) * (len(shape) - 1)))


def read(units: UnitMap, name: str) -> list[Tensor]:
    """Return, for every use of a weight, the unit that each of its columns reads; inputs of the network have none."""
    shape = units.shapes[name]
    return _along(units, name, (1, shape[1], *(1,) * (len(shape) - 2)))


def axes(units: UnitMap, name: str) -> list[list[Tensor]]:
    """Return, for every use of a parameter, its unit numbers, each shortened to the axes along which it changes."""
    return [[compact(index) for index in use.units] for use in units.uses.get(name, [])]


def _along(units: UnitMap, name: str, shape: tuple[int, ...]) -> list[Tensor]:
    found = [[index for index in use if index.shape == shape] for use in axes(units, name)]
    return [indices[0].flatten() for indices in found if indices]
