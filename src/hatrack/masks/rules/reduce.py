"""Operators that collapse axes or mix along one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hatrack.masks import ops
from hatrack.masks.abstract_value import Value
from hatrack.masks.rules.elementwise import binary
from hatrack.masks.rules.rule import Call, rule
from hatrack.masks.union_find import ALWAYS_ON


@rule(*ops.REDUCE)
def reduce(call: Call) -> Any:
    """Collapse axes: where they hold different units this is a read, and no unit is left."""
    x = call.values[0]
    if len(call.values) > 1:  # max and min of two tensors
        return binary(call)
    if x.ids is None and not x.held:
        return call.unknown()
    given, rank = call.get("dim"), len(x.shape)
    axes = range(rank) if given is None or given == [] else [given] if isinstance(given, int) else given
    axes = sorted({axis % rank for axis in axes})
    if x.held:
        mixed = x.mixed(*axes)
        return call.results(lambda shape: mixed.rearranged(shape, lambda pos: _collapsed(pos, axes, shape)))
    assert x.ids is not None
    if any(call.unions.varies(x.ids, axis) for axis in axes):
        call.placement.read(call.node, x)
        return call.results(lambda shape: Value(shape, torch.full((), ALWAYS_ON).expand(shape), reached=True))
    ids = _collapsed(x.ids, axes, call.shape)
    return call.results(lambda shape: call.units(ids, x))


def _collapsed(entries: Tensor, axes: list[int], shape: torch.Size) -> Tensor:
    for axis in axes:
        entries = entries.narrow(axis, 0, 1)
    if len(shape) < entries.ndim:
        entries = entries.squeeze(tuple(axes))
    return entries.expand(shape)


@rule(*ops.ALONG)
def along(call: Call) -> Any:
    """Mix along one axis, keeping the shape: a read, unless all entries along it are of one unit."""
    x = call.values[0]
    if x.held and call.get("dim") is not None:
        return x.mixed(call["dim"] % len(x.shape))
    if x.ids is None or call.get("dim") is None:
        return call.unknown()
    if call.unions.varies(x.ids, call["dim"] % x.ids.ndim):
        call.placement.read(call.node, x)
        return call.units(x.ids)
    return call.units(x.ids, x)


@rule("argmax", "argmin")
def position(call: Call) -> Any:
    """Return where the extreme is: a read, whose result belongs to no unit."""
    return call.unknown() if call.values[0].ids is None else reduce(call)
