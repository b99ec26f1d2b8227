"""Operators after which every entry still belongs to its unit: it is rearranged, or worked on by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn.functional import pad as pad_ids

from hatrack.masks import ops
from hatrack.masks.abstract_value import NOTHING, Held, Value, expand_tail, together
from hatrack.masks.recorder import ParameterUse, Uses, writers
from hatrack.masks.rules.rule import Call, rule, run
from hatrack.masks.union_find import ALWAYS_ON, compact

SUMS, PRODUCTS, QUOTIENTS = ("add", "sub", "subtract", "rsub"), ("mul", "multiply"), ("div", "divide", "true_divide")
TERMS = 2  # of a sum; a number or a tensor without units among them would stay behind a closed gate


@rule(*ops.REARRANGE)
def rearrange(call: Call) -> Any:
    """Run the operator on the unit numbers, or on the positions of a parameter's entries.

    Where data say which entries are picked (a text's last word), the same units must stand wherever they point; then
    the first place will do, at which `unit_ids` points.
    """
    first, *others = call.values
    if call.name in ops.CAST:
        return call.results(lambda shape: _like(call, shape, first, first.ids, first.held))
    unreadable = call.name not in ops.LIKE_THE_SECOND and any(v.known is None for v in others)
    if (unreadable and not _same_anywhere(call, first, others)) or "dtype" in call.given:
        return call.unknown()

    def pick(from_first: Tensor) -> Any:
        return run(call, lambda v: from_first if v is first else v.unit_ids() if v.known is None else v.known)

    ids = None if first.ids is None else pick(first.ids)
    moved = [pick(held.positions(first.shape)) for held in first.held]

    def part(shape: torch.Size, take: Callable[[Any], Tensor]) -> Value:
        held = tuple(replace(h, pos=take(pos)) for h, pos in zip(first.held, moved, strict=True))
        return _like(call, shape, first, None if ids is None else take(ids), held)

    meta = call.node.meta["val"]
    if isinstance(meta, list | tuple):
        return [part(m.shape, itemgetter(i)) for i, m in enumerate(meta)]
    return part(meta.shape, lambda whole: whole)


def _same_anywhere(call: Call, first: Value, places: list[Value]) -> bool:
    """Whether no unit changes along the axes that are indexed, and no unit or parameter has a say in the indices."""
    if call.name not in ops.PICK or first.held or any(v.carries or v.held for v in places):
        return False
    if any(node.meta["val"].dtype != torch.int64 for node in call.node.all_input_nodes[1:]):
        return False  # a mask: how much it leaves depends on the data
    axes = [i for i, v in enumerate(call["indices"]) if v is not None] if call.name == "index" else [call["dim"]]
    ids = first.unit_ids()
    return all(bool((ids == ids.narrow(axis, 0, 1)).all()) for axis in axes)


def _like(call: Call, shape: torch.Size, x: Value, ids: Tensor | None, held: tuple[Held, ...]) -> Value:
    return Value(shape, ids, held, x.writers, x.origins | {call.node}, x.zeros | {call.node}, x.reached)


@rule(*ops.JOIN)
def join(call: Call) -> Any:
    """Run the operator on the unit numbers of all parts; a parameter among units becomes units of its own."""
    if not any(v.ids is not None or v.reached for v in call.values):
        return _joined(call)
    parts = {id(v): as_units(call, v) for v in call.values}
    ids = run(call, lambda v: parts[id(v)].unit_ids())
    from_weights = all(v.writers or not v.carries for v in parts.values())
    writers = frozenset().union(*(v.writers for v in parts.values())) if from_weights else frozenset()
    carrying = [v.zeros for v in parts.values() if v.carries]
    zeros = frozenset.intersection(*carrying) if carrying else frozenset()
    return call.units(ids, *parts.values(), writers=writers, zeros=zeros)


def _joined(call: Call) -> Value:
    """Put together parameters and constants: each part of the result comes from what it was made of."""
    zero = all(v.held or (v.known is not None and not bool(v.known.any())) for v in call.values)

    def positions(part: Value, held: Held) -> Any:
        return run(call, lambda v: held.positions(v.shape) if v is part else torch.full(v.shape, NOTHING))

    parts = [part for part in {id(v): v for v in call.values}.values() if part.shape.numel()]
    whole = [replace(h, pos=positions(v, h), scaled=h.scaled and zero) for v in parts for h in v.held]
    return Value(call.shape, held=tuple(whole))


def as_units(call: Call, value: Value) -> Value:
    """Turn what is computed from parameters, where it is used as data (a class token), into units of its own."""
    if not value.held:
        return value
    ids, uses = value.unit_ids(), []
    for held in value.held:
        units, use = call.recorder.parameter_units(held)
        pos = held.positions(value.shape)
        ids = _met(call, ids, torch.where(pos == NOTHING, ALWAYS_ON, units[pos.clamp_min(0)]))
        uses.append(use)
    return call.units(ids, writers=writers(tuple(uses)), shape=value.shape)


@rule(*ops.POINTWISE)
def pointwise(call: Call) -> Any:
    first, *others = call.values
    if others:
        return binary(call)
    kept = call.name in ops.HOMOGENEOUS

    if first.held:
        held = tuple(replace(h, scaled=h.scaled and kept) for h in first.held)
        return call.results(lambda shape: Value(shape, held=held))
    zeros, writers = (first.zeros, first.writers) if kept else (frozenset(), frozenset())
    ids = first.unit_ids()
    return call.results(lambda shape: call.units(ids, first, writers=writers, zeros=zeros))


@rule(*ops.BINARY)
def binary(call: Call) -> Any:
    """Bring tensors together entry by entry: units that meet are one, parameters act on the unit they meet."""
    units = [v for v in call.values if v.ids is not None]
    params = [v for v in call.values if v.held]
    if not units:
        if not any(v.reached for v in call.values):
            return _of_parameters(call, params)
        units = [as_units(call, v) for v in params]  # the network's input meets a parameter
        params = []
    ids = units[0].unit_ids().expand(call.shape)
    for other in units[1:]:
        ids = _met(call, ids, other.unit_ids().expand(call.shape))
    acting = [call.recorder.use_elementwise(v, ids) for v in params]
    # What a parameter adds to a closed unit stays there whatever is done to the other operand.
    sources = [] if params else units
    return call.units(ids, *sources, writers=_writers(call, ids, units, acting), zeros=_zeros(call, ids, units))


def _met(call: Call, a: Tensor, b: Tensor) -> Tensor:
    here, there = torch.broadcast_tensors(compact(call.now(a)), compact(call.now(b)))
    both = (here != ALWAYS_ON) & (there != ALWAYS_ON)
    call.unions.merge(here[both], there[both])
    return torch.where(here == ALWAYS_ON, there, here).expand(torch.broadcast_shapes(a.shape, b.shape))


def _writers(call: Call, ids: Tensor, units: list[Value], acting: list[Uses]) -> frozenset[ParameterUse]:
    """Return the parameters whose gates, all together, are gates on the result."""
    if call.name in SUMS:
        terms = [v.writers for v in _whole(ids, units)] + [writers(uses) for uses in acting]
        return frozenset().union(*terms) if all(terms) and len(terms) == TERMS else frozenset()
    return next((v.writers for v in _whole(ids, _factors(call, units)) if v.writers), frozenset())


def _zeros(call: Call, ids: Tensor, units: list[Value]) -> frozenset[Node]:
    """Return the nodes where zeros are zeros in the result."""
    if call.name in SUMS:
        terms = [v.zeros for v in _whole(ids, units)]
        return frozenset.intersection(*terms) if len(terms) == TERMS else frozenset()
    return frozenset().union(*(v.zeros for v in _whole(ids, _factors(call, units))))


def _factors(call: Call, units: list[Value]) -> list[Value]:
    """Return the operands of which any one makes the result zero."""
    if call.name in PRODUCTS:
        return units
    return units[:1] if call.name in QUOTIENTS and call["self"].ids is not None else []


def _whole(ids: Tensor, units: list[Value]) -> list[Value]:
    """Return the operands that have a unit wherever the result has one: only those are all gated with it."""
    return [v for v in units if not bool(((compact(v.unit_ids()) == ALWAYS_ON) & (compact(ids) != ALWAYS_ON)).any())]


def _of_parameters(call: Call, params: list[Value]) -> Value:
    """Compute something entry by entry from parameters and constants."""
    scaling = call.name in PRODUCTS or (call.name in QUOTIENTS and call["self"] is params[0])
    return together(call.shape, params, scaled=scaling and len(params) == 1)


@rule("glu")
def glu(call: Call) -> Any:
    """Multiply one half of an axis by the sigmoid of the other: units that meet are one."""
    x = call["self"]
    if x.ids is None:
        return call.unknown()
    value, gate = x.ids.chunk(2, call["dim"])
    ids = _met(call, value, gate)
    whole = bool(_whole(ids, [Value(call.shape, value)]))
    return call.units(ids, x, writers=x.writers if whole else (), zeros=x.zeros if whole else ())


@rule(*ops.SPATIAL)
def spatial(call: Call) -> Any:
    """Mix the last axes, each unit by itself."""
    x, tail = call.values[0], ops.SPATIAL[call.name]
    if x.held:
        mixed = x.mixed(*range(len(x.shape) - tail, len(x.shape)))
        return call.results(lambda shape: mixed.rearranged(shape, lambda pos: expand_tail(pos, shape, tail)))
    if x.ids is None or any(call.unions.varies(x.ids, x.ids.ndim - 1 - a) for a in range(tail)):
        return call.unknown()
    ids = x.ids
    return call.results(lambda shape: call.units(expand_tail(ids, shape, tail), x))


@rule("pad", "constant_pad_nd")
def pad(call: Call) -> Any:
    """Widen axes: along axes where all entries are of one unit, the new ones are of that unit too."""
    x, widths = call.values[0], call["pad"]
    tail = len(widths) // 2
    if x.ids is None:
        return call.unknown()
    constant = call.get("mode", "constant") == "constant"
    zeros = x.zeros if not constant or not call.get("value") else frozenset()
    if not any(call.unions.varies(x.ids, x.ids.ndim - 1 - a) for a in range(tail)):
        return call.units(expand_tail(x.ids, call.shape, tail), x, zeros=zeros)
    if not constant:
        return call.unknown()
    return call.units(pad_ids(x.ids, widths, value=ALWAYS_ON), x, zeros=x.zeros)
