"""Products of matrices: with a weight they are a layer, of two activations they read what they sum over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from hatrack.masks.abstract_value import Value, together
from hatrack.masks.recorder import writers
from hatrack.masks.rules.elementwise import as_units
from hatrack.masks.rules.rule import Call, becomes_weight, rule
from hatrack.masks.union_find import ALWAYS_ON, constant_along


@rule("linear")
def linear(call: Call) -> Any:
    """y = x·Wᵀ + b."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    odd = weight.ids is not None or len(x.shape) < 2 or len(weight.shape) != 2
    if odd or (bias is not None and bias.ids is not None):
        return call.unknown()
    turned, shape = _transposed(weight), call.shape
    result = product(call, x, turned, shape) if weight.held else _weigh(call, as_units(call, x), turned, shape)
    return result if bias is None else _shifted(call, result, bias)


@rule("matmul", "bmm", "mm", "mv")
def matmul(call: Call) -> Any:
    """Multiply two activations, or an activation by a weight from either side; a vector is a matrix of one column."""
    a, b = call.values
    if len(b.shape) > 1 or len(a.shape) < 2:
        return product(call, a, b, call.shape)
    column = _laid(b, lambda entries: entries[:, None])
    return _laid(product(call, a, column, torch.Size([*call.shape, 1])), lambda entries: entries.squeeze(-1))


@rule("addmm", "baddbmm")
def addmm(call: Call) -> Any:
    """y = b + x·W."""
    a, b = (call["mat1"], call["mat2"]) if call.name == "addmm" else (call["batch1"], call["batch2"])
    if call["self"].ids is not None:
        return call.unknown()
    return _shifted(call, product(call, a, b, call.shape), call["self"])


@rule("einsum")
def einsum(call: Call) -> Any:
    """Bring two operands into the form [shared…, rows, summed] · [shared…, summed, columns]."""
    operands = call["tensors"]
    terms, out = _labels(call["equation"], [len(value.shape) for value in operands])
    if len(operands) != 2 or not out or any(len(set(term)) != len(term) for term in terms):
        return call.unknown()
    (one, other), (a, b) = terms, operands
    shared = [x for x in one if x in other and x in out]
    summed = [x for x in one if x in other and x not in out]
    rows, columns = [x for x in one if x not in other], [x for x in other if x not in one]
    if not all(x in out for x in rows + columns):
        return call.unknown()
    size = dict(zip(one + other, (*a.shape, *b.shape), strict=True))

    def arrange(value: Value, term: str, first: list[str], second: list[str]) -> Value:
        sizes = [size[x] for x in shared] + [prod(size[x] for x in labels) for labels in (first, second)]
        order = [term.index(x) for x in shared + first + second]
        return _laid(value, lambda entries: entries.permute(order).reshape(sizes))

    left, right = arrange(a, one, rows, summed), arrange(b, other, summed, columns)
    whole = torch.Size([*(size[x] for x in shared), left.shape[-2], right.shape[-1]])
    spread = shared + rows + columns
    sizes, order = [size[x] for x in spread], [spread.index(x) for x in out]
    return _laid(product(call, left, right, whole), lambda entries: entries.reshape(sizes).permute(order))


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Any:
    """softmax(q·kᵀ + mask)·v: the units along the features of a head are read; those of v stay apart."""
    q, k, v = (as_units(call, call[name]) for name in ("query", "key", "value"))
    mask = call["attn_mask"]
    if mask is not None:
        call.recorder.freeze(mask, why="it acts on attention scores, which belong to no unit")
        if mask.carries:
            call.placement.read(call.node, mask)
    queries, keys, values = q.unit_ids(), k.unit_ids(), v.unit_ids()
    if call["enable_gqa"]:  # each key and value head serves several query heads
        keys = keys.repeat_interleave(queries.shape[-3] // keys.shape[-3], dim=-3)
        values = values.repeat_interleave(queries.shape[-3] // values.shape[-3], dim=-3)
    scores = torch.Size([*call.shape[:-2], queries.shape[-2], keys.shape[-2]])
    left, right = replace(q, ids=queries), replace(k, ids=keys.transpose(-1, -2))
    if between(call, left, right, scores).carries:
        return call.unknown()
    passed = call.unions.along(values, *(axis for axis in range(values.ndim) if axis != values.ndim - 2))
    return call.units(passed.expand(call.shape))


def _labels(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return the labels of the operands and of the result; leading axes under an ellipsis get capital letters."""
    inputs, _, out = equation.replace(" ", "").partition("->")
    terms, longest = [], ""
    for term, rank in zip(inputs.split(","), ranks, strict=True):
        count = rank - len(term.replace("...", "")) if "..." in term else 0
        hidden = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[26 - count :]  # counted from the right, as broadcasting does
        longest = max(longest, hidden, key=len)
        terms.append(term.replace("...", hidden))
    return terms, out.replace("...", longest)


def _laid(value: Value, lay: Callable[[Tensor], Tensor]) -> Value:
    """Return a value with its entries in another order; as for gates, it stays the one that it was."""
    shape = lay(torch.empty(value.shape, device="meta")).shape
    held = value.rearranged(shape, lay).held
    return replace(value, shape=shape, ids=None if value.ids is None else lay(value.ids), held=held)


def product(call: Call, a: Value, b: Value, shape: torch.Size) -> Any:
    """Multiply a (…, i, k) by b (…, k, j)."""
    if min(len(a.shape), len(b.shape)) < 2:
        return call.unknown()
    if not any(v.ids is not None or v.reached for v in (a, b)) and becomes_weight(call.node):
        return _of_parameters(a, b, shape)
    if b.held:
        return _weigh(call, as_units(call, a), b, shape)
    if a.held:
        turned = torch.Size([*shape[:-2], shape[-1], shape[-2]])
        return _transposed(_weigh(call, _transposed(b), _transposed(a), turned))
    return between(call, a, b, shape)


def _transposed(value: Value) -> Value:
    return _laid(value, lambda entries: entries.transpose(-1, -2))


def _of_parameters(a: Value, b: Value, shape: torch.Size) -> Value:
    """Multiply what is computed from parameters (low-rank weights): entry (i, j) needs row i of a and column j of b."""
    rows = a.mixed(-1).rearranged(shape, lambda pos: pos.narrow(-1, 0, 1).expand(shape))
    columns = b.mixed(-2).rearranged(shape, lambda pos: pos.narrow(-2, 0, 1).expand(shape))
    return together(shape, [rows, columns])


def between(call: Call, a: Value, b: Value, shape: torch.Size) -> Value:
    """Multiply two activations: units along the summed axis are read here, in both factors at once."""
    left, in_a = _settled(call, a.unit_ids(), -1, -2)
    right, in_b = _settled(call, b.unit_ids(), -2, -1)
    if in_a and in_b:
        call.unions.merge(left.squeeze(-2), right.squeeze(-1))
    if in_a or in_b:
        call.placement.read(call.node, *([a] if in_a else []), *([b] if in_b else []))
    nothing = torch.zeros(1, 1, dtype=torch.long)
    rows = nothing if in_a else call.now(left.narrow(-1, 0, 1))
    columns = nothing if in_b else call.now(right.narrow(-2, 0, 1))
    few, many = len(call.unions.live(rows)), len(call.unions.live(columns))
    if few and many:  # an entry would belong to two units: those that are fewer are read here
        call.placement.read(call.node, a if few <= many else b)
        rows, columns = (nothing, call.now(columns)) if few <= many else (call.now(rows), nothing)
    ids = torch.where(*torch.broadcast_tensors(rows == ALWAYS_ON, columns, rows))
    return call.units(ids.expand(shape), shape=shape)


def _settled(call: Call, ids: Tensor, summed: int, other: int) -> tuple[Tensor, bool]:
    """Return one factor of a product with units along one of its axes only, and whether that is the summed one.

    If they stand along both (a class token among patches, say), the axis with more of them is the one of the units.
    """
    summed, other = summed % ids.ndim, other % ids.ndim
    if not call.unions.varies(ids, summed):
        return ids, False
    here, there = (len(call.unions.roots(ids.select(axis, 0)).unique()) for axis in (other, summed))
    reads = here >= there
    gone = other if reads else summed
    return call.unions.along(ids, *(axis for axis in range(ids.ndim) if axis != gone)), reads


def _shifted(call: Call, result: Value, bias: Value) -> Value:
    """Add a bias, each entry of which acts on the unit at its place."""
    if result.held:
        return together(result.shape, [result, bias])
    if result.ids is None:
        call.recorder.freeze(bias, why="it acts on values that belong to no unit")
        return result
    shift = writers(call.recorder.use_elementwise(bias, result.ids))
    both = result.writers | shift if result.writers and shift else ()
    return call.units(result.ids, writers=both, shape=result.shape)


def _weigh(call: Call, x: Value, weight: Value, shape: torch.Size) -> Value:
    """Multiply x (…, i, k) by a weight (…, k, j).

    Every j is a new unit that reads the units along k. Leading axes along which the weight changes belong to the
    unit as well (one matrix a head); over the others it is the same weight.
    """
    batch = torch.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    ids = x.unit_ids().expand(*batch, *x.shape[-2:])
    *others, summed = (call.unions.varies(ids, axis) for axis in range(ids.ndim))
    if any(others) and not summed:
        call.recorder.freeze(weight, why="it serves every unit alike (it mixes positions, not units)")
        return call.units(ids.narrow(-1, 0, 1).expand(shape), shape=shape)
    whole = torch.Size([*batch, *weight.shape[-2:]])
    here = weight.rearranged(whole, lambda pos: pos.expand(whole))
    own = [a for a in range(len(batch)) if any(not constant_along(h.positions(whole), a) for h in here.held)]
    read = call.unions.along(ids, *own, ids.ndim - 1).transpose(-1, -2)  # (…, k, 1)
    heads = [batch[axis] if axis in own else 1 for axis in range(len(batch))]
    written = call.fresh(prod(heads) * shape[-1], weight).view(*heads, 1, shape[-1])
    uses = call.recorder.use(here, (written, read), written)
    call.placement.read_by_weight(call.node, x, here, uses, read)
    return replace(call.written(written.expand(shape), uses), shape=shape)
