"""Norms: what they read are the units that share a statistic; what they scale and shift stays the unit it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hatrack.masks.rules.registry import Call, rule
from hatrack.masks.values import Value


@rule("batch_norm", "instance_norm")
def per_channel(call: Call) -> Any:
    """Give every channel a statistic of its own: no unit is mixed with another."""
    x = call["input"]
    affine = [v for v in (call["weight"], call["bias"]) if v is not None]
    if call["running_mean"] is not None:
        call.ledger.norms[call.reading.module(call.node)] = call.name
    elif x.ids is None:
        return _on_the_input(call, x, affine)
    channels = call.unions.along(x.unit_ids(), 1).reshape(-1)
    for value in affine:
        call.ledger.use(value, (channels,))
    return call.results(lambda shape: call.units(x.ids) if x.ids is not None else Value(shape, reached=x.reached))


@rule("layer_norm", "rms_norm", "group_norm")
def over_units(call: Call) -> Any:
    """Share a statistic among units: it must not depend on closed ones, so this is a read."""
    x = call["input"]
    affine = [v for v in (call["weight"], call.get("bias")) if v is not None]
    if x.ids is None:
        return _on_the_input(call, x, affine)
    grouped = call.name == "group_norm"
    mixed = range(1, x.ids.ndim) if grouped else range(x.ids.ndim - len(call["normalized_shape"]), x.ids.ndim)
    if any(call.unions.varies(x.ids, axis) for axis in mixed):
        call.reading.read(call.node, x)
    for value in affine:
        call.ledger.meet(_on_channels(value, x) if grouped else value, x.ids)
    return call.units(x.ids)


@rule("prelu", "_prelu_kernel")
def prelu(call: Call) -> Any:
    """Scale negative entries by a parameter, one a channel or one for all."""
    x, slope = call["self"], call["weight"]
    if x.ids is None or slope.param is None:
        return call.unknown()
    call.ledger.meet(_on_channels(slope, x) if len(slope.shape) == 1 else slope, x.ids)
    return call.units(x.ids, x, writers=x.writers, zeros=x.zeros)


def _on_channels(value: Value, x: Value) -> Value:
    """Return a vector over channels as it broadcasts to x."""
    pos = value.positions().view(-1, *(1,) * (len(x.shape) - 2))
    return replace(value, pos=pos, shape=pos.shape)


def _on_the_input(call: Call, x: Value, affine: list[Value]) -> Any:
    """Normalise the network's input: no unit is there yet, so scale and shift serve every task."""
    for value in affine:
        call.ledger.freeze(value, why="it acts on the network's input, which belongs to no unit")
    return call.results(lambda shape: Value(shape, reached=x.reached))
