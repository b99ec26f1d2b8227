"""What stays of parameters when units go.

An entry goes if under every use of its parameter one of its units goes; along each axis of a parameter, what goes is
what has no entry left. Which units may go is tried by whoever calls this: code of the user's that knows a width by
heart does not bear it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from hatrack.masks.unitmap import ON, Use

Kept = list[Tensor | None]  # along each axis, the places that stay; None: all


class Uncuttable(Exception):
    """A layer cannot do without these units; in words."""


def extended(values: Tensor, on: float) -> Tensor:
    """Return a vector over units with what stands at ON behind it, and at OFF its contrary."""
    return torch.cat([values, values.new_tensor([1 - on, on])])


def left(units: Sequence[Tensor], shape: Sequence[int], gone: Tensor) -> Kept:
    """Return what stays along each axis of a tensor at whose entries all these units must be on."""
    return kept([Use(tuple(units))], shape, gone)


def kept(uses: Sequence[Use], shape: Sequence[int], gone: Tensor) -> Kept:
    """Return what stays along each axis of a parameter when the units marked in `gone` go."""
    ends = extended(gone, 0)
    hit = torch.zeros((1,) * len(shape), dtype=torch.bool)
    away = torch.ones((1,) * len(shape), dtype=torch.bool)
    for use in uses:
        by_unit = reduce(torch.logical_or, (ends[units.cpu()] & (units.cpu() >= ON) for units in use.units))
        never = reduce(torch.logical_or, (ends[units.cpu()] for units in use.units))
        hit, away = hit | by_unit, away & never
    found: Kept = []
    for axis, size in enumerate(shape):
        others = [a for a in range(len(shape)) if a != axis]
        empty = (away.all(others) & hit.any(others) if others else away & hit).expand(size)
        if bool(empty.all()):
            raise Uncuttable("nothing would be left")
        found.append((~empty).nonzero().flatten() if bool(empty.any()) else None)
    return found


def taken(tensor: Tensor, keep: Sequence[Tensor | None]) -> Tensor:
    """Return the entries of a tensor that stay."""
    for axis, index in enumerate(keep):
        if index is not None:
            tensor = tensor.index_select(axis, index.to(tensor.device))
    return tensor.contiguous()
