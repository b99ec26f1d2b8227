"""Norms: what they read are the units that share a statistic; what they scale and shift stays the unit it was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from hatrack.masks.abstract_value import Value, together
from hatrack.masks.rules.elementwise import as_units
from hatrack.masks.rules.rule import Call, becomes_weight, rule


@rule("batch_norm", "instance_norm")
def per_channel(call: Call) -> Any:
    """Give every channel a statistic of its own: no unit is mixed with another."""
    x = call["input"]
    affine = [v for v in (call["weight"], call["bias"]) if v is not None]
    if x.held:
        return _of_parameters(call, x, [axis for axis in range(len(x.shape)) if axis != 1], affine)
    if call["running_mean"] is not None:
        call.recorder.norms[call.placement.calls.module(call.node)] = call.name
    elif x.ids is None:
        return _on_the_input(call, x, affine)
    channels = call.unions.along(x.unit_ids(), 1).reshape(-1)
    if call["running_mean"] is not None:
        call.recorder.statistics[call.placement.calls.module(call.node)] = channels
    for value in affine:
        call.recorder.use(value, (channels,))
    return call.results(lambda shape: call.units(x.ids) if x.ids is not None else Value(shape, reached=x.reached))


@rule("layer_norm", "rms_norm", "group_norm")
def over_units(call: Call) -> Any:
    """Share a statistic among units: it must not depend on closed ones, so this is a read."""
    x = call["input"]
    affine = [v for v in (call["weight"], call.get("bias")) if v is not None]
    grouped, rank = call.name == "group_norm", len(x.shape)
    mixed = range(1, rank) if grouped else range(rank - len(call["normalized_shape"]), rank)
    if x.held and becomes_weight(call.node):
        return _of_parameters(call, x, mixed, [] if grouped else affine)
    x = as_units(call, x)
    if x.ids is None:
        return _on_the_input(call, x, affine)
    if any(call.unions.varies(x.ids, axis) for axis in mixed):
        call.placement.read(call.node, x)
    for value in affine:
        call.recorder.use_elementwise(_on_channels(value, x) if grouped else value, x.ids)
    return call.units(x.ids)


@rule("_weight_norm")
def weight_norm(call: Call) -> Any:
    """w = g·v/‖v‖ along all axes but one: an entry depends on the row of v and on the row's g."""
    v, g = call["v"], call["g"]
    if any(value.ids is not None or value.reached for value in (v, g)):
        return call.unknown()
    rank = len(v.shape)
    return together(v.shape, [v.mixed(*(axis for axis in range(rank) if axis != call["dim"] % rank)), g])


def _of_parameters(call: Call, x: Value, mixed: Iterable[int], affine: list[Value]) -> Value:
    """Normalise something computed from parameters (weight standardisation): its entries depend on one another."""
    per_channel = call.name in ("batch_norm", "instance_norm")
    return together(x.shape, [x.mixed(*mixed), *(_on_channels(v, x) if per_channel else v for v in affine)])


@rule("prelu", "_prelu_kernel")
def prelu(call: Call) -> Any:
    """Scale negative entries by a parameter, one a channel or one for all."""
    x, slope = call["self"], call["weight"]
    if x.ids is None or not slope.held:
        return call.unknown()
    call.recorder.use_elementwise(_on_channels(slope, x) if len(slope.shape) == 1 else slope, x.ids)
    return call.units(x.ids, x, writers=x.writers, zeros=x.zeros)


def _on_channels(value: Value, x: Value) -> Value:
    """Return a vector over channels as it broadcasts to x."""
    shape = torch.Size([*value.shape, *(1,) * (len(x.shape) - 2)])
    return value.rearranged(shape, lambda pos: pos.view(shape))


def _on_the_input(call: Call, x: Value, affine: list[Value]) -> Any:
    """Normalise the network's input: no unit is there yet, so scale and shift serve every task."""
    for value in affine:
        call.recorder.freeze(value, why="it acts on the network's input, which belongs to no unit")
    return call.results(lambda shape: Value(shape, reached=x.reached))
