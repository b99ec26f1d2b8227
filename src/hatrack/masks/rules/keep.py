"""Operators after which every entry still belongs to the unit it belonged to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn.functional import pad as pad_ids

from hatrack.masks import ops
from hatrack.masks.ledger import Occasion
from hatrack.masks.rules.registry import Call, rule, run
from hatrack.masks.unions import ALWAYS_ON, compact
from hatrack.masks.values import Value, expand_tail

SUMS, PRODUCTS, QUOTIENTS = ("add", "sub", "subtract", "rsub"), ("mul", "multiply"), ("div", "divide", "true_divide")
TERMS = 2  # of a sum; a number or a tensor without units among them would stay behind a closed gate


@rule(*ops.REARRANGE)
def rearrange(call: Call) -> Any:
    """Run the operator on the unit numbers, or on the positions of a parameter's entries."""
    first, *others = call.values
    if call.name in ops.CAST:
        return call.results(lambda shape: _like(call, shape, first, first.ids, first.pos))
    unreadable = call.name not in ops.LIKE_THE_SECOND and any(v.known is None for v in others)
    if unreadable or "dtype" in call.given:
        return call.unknown()

    def pick(from_first: Tensor) -> Any:
        return run(call, lambda v: from_first if v is first else v.unit_ids() if v.known is None else v.known)

    ids = None if first.ids is None else pick(first.ids)
    pos = None if first.param is None else pick(first.positions())
    meta = call.node.meta["val"]
    if isinstance(meta, list | tuple):
        return [
            _like(call, m.shape, first, None if ids is None else ids[i], None if pos is None else pos[i])
            for i, m in enumerate(meta)
        ]
    return _like(call, meta.shape, first, ids, pos)


def _like(call: Call, shape: torch.Size, x: Value, ids: Tensor | None, pos: Tensor | None) -> Value:
    origins, zeros = x.origins | {call.node}, x.zeros | {call.node}
    return Value(shape, ids, x.param, pos, x.scaled, x.writers, origins, zeros, x.reached)


@rule(*ops.JOIN)
def join(call: Call) -> Any:
    """Run the operator on the unit numbers of all parts; a parameter among them becomes units of its own."""
    parts = {id(v): born(call, v) for v in call.values}
    ids = run(call, lambda v: parts[id(v)].unit_ids())
    from_weights = all(v.writers or not v.carries for v in parts.values())
    writers = frozenset().union(*(v.writers for v in parts.values())) if from_weights else frozenset()
    carrying = [v.zeros for v in parts.values() if v.carries]
    zeros = frozenset.intersection(*carrying) if carrying else frozenset()
    return call.units(ids, *parts.values(), writers=writers, zeros=zeros)


def born(call: Call, value: Value) -> Value:
    """Turn a parameter that is used as data (a class token) into units of its own, one an entry."""
    if value.param is None:
        return value
    shape = call.ledger.shapes[value.param]
    fresh = call.unions.fresh(value.param, shape.numel())
    occasion = call.ledger.use(
        Value(shape, param=value.param, scaled=value.scaled), (fresh.view(shape),), fresh.view(shape)
    )
    ids = fresh[value.positions()]
    writers = frozenset({occasion}) if occasion is not None and occasion.written is not None else frozenset()
    return call.units(ids, writers=writers, shape=value.shape)


@rule(*ops.POINTWISE)
def pointwise(call: Call) -> Any:
    """Act on every entry by itself."""
    first, *others = call.values
    if others:
        return binary(call)
    kept = call.name in ops.HOMOGENEOUS

    if first.param is not None:
        return call.results(lambda shape: Value(shape, None, first.param, first.pos, first.scaled and kept))
    zeros, writers = (first.zeros, first.writers) if kept else (frozenset(), frozenset())
    ids = first.unit_ids()
    return call.results(lambda shape: call.units(ids, first, writers=writers, zeros=zeros))


@rule(*ops.BINARY)
def binary(call: Call) -> Any:
    """Bring tensors together entry by entry: units that meet are one, parameters act on the unit they meet."""
    units = [v for v in call.values if v.ids is not None]
    params = [v for v in call.values if v.param is not None]
    if not units:
        if not any(v.reached for v in call.values):
            return _of_parameters(call, params)
        units = [born(call, v) for v in params]  # the network's input meets a parameter
        params = []
    ids = units[0].unit_ids().expand(call.shape)
    for other in units[1:]:
        ids = _met(call, ids, other.unit_ids().expand(call.shape))
    acting = [call.ledger.meet(v, ids) for v in params]
    # What a parameter adds to a closed unit stays there whatever is done to the other operand.
    sources = [] if params else units
    return call.units(ids, *sources, writers=_writers(call, ids, units, acting), zeros=_zeros(call, ids, units))


def _met(call: Call, a: Tensor, b: Tensor) -> Tensor:
    here, there = torch.broadcast_tensors(compact(a), compact(b))
    both = (here != ALWAYS_ON) & (there != ALWAYS_ON)
    call.unions.merge(here[both], there[both])
    return torch.where(here == ALWAYS_ON, there, here).expand(call.shape)


def _writers(call: Call, ids: Tensor, units: list[Value], acting: list[Occasion | None]) -> frozenset[Occasion]:
    """Return the parameters whose gates, all together, are gates on the result."""
    if call.name in SUMS:
        terms = [v.writers for v in _whole(ids, units)] + [_writer(occasion) for occasion in acting]
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


def _writer(occasion: Occasion | None) -> frozenset[Occasion]:
    return frozenset() if occasion is None or occasion.written is None else frozenset({occasion})


def _of_parameters(call: Call, params: list[Value]) -> Any:
    """Compute something from one parameter and constants; it stays that parameter if it keeps its shape."""
    if len(params) != 1 or params[0].shape != call.shape:
        return call.unknown()
    p = params[0]
    scaling = call.name in PRODUCTS or (call.name in QUOTIENTS and call["self"] is p)
    return Value(p.shape, None, p.param, p.pos, p.scaled and scaling)


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
