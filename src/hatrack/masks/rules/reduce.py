"""Operators that collapse axes or mix along one."""

from __future__ import annotations

from typing import Any

from hatrack.masks import ops
from hatrack.masks.rules.keep import binary
from hatrack.masks.rules.registry import Call, rule


@rule(*ops.REDUCE)
def reduce(call: Call) -> Any:
    """Collapse axes: where they hold different units this is a read, and no unit is left."""
    x = call.values[0]
    if len(call.values) > 1:  # max and min of two tensors
        return binary(call)
    if x.ids is None:
        return call.unknown()
    given = call.get("dim")
    axes = range(x.ids.ndim) if given is None or given == [] else [given] if isinstance(given, int) else given
    axes = sorted({axis % x.ids.ndim for axis in axes})
    if any(call.unions.varies(x.ids, axis) for axis in axes):
        call.reading.read(call.node, x)
        return call.mixed()
    ids = x.ids
    for axis in axes:
        ids = ids.narrow(axis, 0, 1)
    if len(call.shape) < ids.ndim:
        ids = ids.squeeze(tuple(axes))
    return call.results(lambda shape: call.units(ids.expand(shape), x))


@rule(*ops.ALONG)
def along(call: Call) -> Any:
    """Mix along one axis, keeping the shape: a read, unless all entries along it are of one unit."""
    x = call.values[0]
    if x.ids is None or call.get("dim") is None:
        return call.unknown()
    if call.unions.varies(x.ids, call["dim"] % x.ids.ndim):
        call.reading.read(call.node, x)
        return call.units(x.ids)
    return call.units(x.ids, x)


@rule("argmax", "argmin")
def position(call: Call) -> Any:
    """Return where the extreme is: a read, whose result belongs to no unit."""
    return call.unknown() if call.values[0].ids is None else reduce(call)
