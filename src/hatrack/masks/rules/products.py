"""Products of matrices: with a weight they are a layer, of two activations they read what they sum over."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hatrack.masks.rules.registry import Call, rule
from hatrack.masks.unions import ALWAYS_ON, constant_along
from hatrack.masks.values import Value


@rule("linear")
def linear(call: Call) -> Any:
    """y = x·Wᵀ + b."""
    x, weight, bias = call["input"], call["weight"], call["bias"]
    odd = weight.ids is not None or x.param is not None or len(x.shape) < 2 or len(weight.shape) != 2
    if odd or (bias is not None and bias.ids is not None):
        return call.unknown()
    result = _weigh(call, x, x.unit_ids(), weight, weight.positions().transpose(-1, -2), call.shape)
    return result if bias is None else _shifted(call, result, bias)


@rule("matmul", "bmm", "mm", "mv")
def matmul(call: Call) -> Any:
    """Multiply two activations, or an activation by a weight from either side; a vector is a matrix of one column."""
    a, b = call.values
    left, right = _entries(a), _entries(b)
    if right.ndim > 1 or left.ndim < 2:
        return product(call, a, b, left, right, call.shape)
    result = product(call, a, b, left, right[:, None], torch.Size([*call.shape, 1]))
    return call.units(result.ids.squeeze(-1), writers=result.writers) if result.ids is not None else result


@rule("addmm", "baddbmm")
def addmm(call: Call) -> Any:
    """y = b + x·W."""
    a, b = (call["mat1"], call["mat2"]) if call.name == "addmm" else (call["batch1"], call["batch2"])
    if call["self"].ids is not None:
        return call.unknown()
    result = product(call, a, b, _entries(a), _entries(b), call.shape)
    return result if result.ids is None else _shifted(call, result, call["self"])


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

    def arrange(entries: Tensor, term: str, first: list[str], second: list[str]) -> Tensor:
        ordered = entries.permute([term.index(x) for x in shared + first + second])
        return ordered.reshape([size[x] for x in shared] + [_count(size, first), _count(size, second)])

    left, right = arrange(_entries(a), one, rows, summed), arrange(_entries(b), other, summed, columns)
    whole = torch.Size([*(size[x] for x in shared), left.shape[-2], right.shape[-1]])
    result = product(call, a, b, left, right, whole)
    if result.ids is None:
        return result
    spread = shared + rows + columns
    ids = result.ids.reshape([size[x] for x in spread]).permute([spread.index(x) for x in out])
    return call.units(ids, writers=result.writers)


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


def _count(size: dict[str, int], labels: list[str]) -> int:
    return int(torch.Size([size[x] for x in labels]).numel())


def _entries(value: Value) -> Tensor:
    return value.unit_ids() if value.param is None else value.positions()


def product(call: Call, a: Value, b: Value, left: Tensor, right: Tensor, shape: torch.Size) -> Any:
    """Multiply `left` (…, i, k) by `right` (…, k, j): unit numbers of an activation, positions in a parameter."""
    if min(left.ndim, right.ndim) < 2 or (a.param is not None and b.param is not None):
        return call.unknown()
    if b.param is not None:
        return _weigh(call, a, left, b, right, shape)
    if a.param is not None:
        turned = torch.Size([*shape[:-2], shape[-1], shape[-2]])
        result = _weigh(call, b, right.transpose(-1, -2), a, left.transpose(-1, -2), turned)
        assert result.ids is not None
        return call.units(result.ids.transpose(-1, -2), writers=result.writers, shape=shape)
    return between(call, a, b, left, right, shape)


def between(call: Call, a: Value, b: Value, left: Tensor, right: Tensor, shape: torch.Size) -> Value:
    """Multiply two activations: units along the summed axis are read here, in both factors at once."""
    left, in_a = _settled(call, left, left.ndim - 1, left.ndim - 2)
    right, in_b = _settled(call, right, right.ndim - 2, right.ndim - 1)
    if in_a and in_b:
        call.unions.merge(left.squeeze(-2), right.squeeze(-1))
    if in_a or in_b:
        call.reading.read(call.node, *([a] if in_a else []), *([b] if in_b else []))
    nothing = torch.zeros(1, 1, dtype=torch.long)
    rows, columns = nothing if in_a else left.narrow(-1, 0, 1), nothing if in_b else right.narrow(-2, 0, 1)
    if len(call.unions.live(rows)) and len(call.unions.live(columns)):
        result: Value = call.unknown()  # every entry would belong to two units
        return Value(shape, reached=result.reached)
    ids = torch.where(*torch.broadcast_tensors(rows == ALWAYS_ON, columns, rows))
    return call.units(ids.expand(shape), shape=shape)


def _settled(call: Call, ids: Tensor, summed: int, other: int) -> tuple[Tensor, bool]:
    """Return one factor of a product with units along one of its axes only, and whether that is the summed one.

    If they stand along both (a class token among patches, say), the axis with more of them is the one of the units.
    """
    if not call.unions.varies(ids, summed):
        return ids, False
    here, there = (len(call.unions.roots(ids.select(axis, 0)).unique()) for axis in (other, summed))
    reads = here >= there
    gone = other if reads else summed
    return call.unions.along(ids, *(axis for axis in range(ids.ndim) if axis != gone)), reads


def _shifted(call: Call, result: Value, bias: Value) -> Value:
    """Add a bias, each entry of which acts on the unit at its place."""
    assert result.ids is not None
    shift = call.ledger.meet(bias, result.ids)
    known = result.writers and shift is not None and shift.written is not None
    writers = result.writers | {shift} if known and shift is not None else frozenset()
    return call.units(result.ids, writers=writers, shape=result.shape)


def _weigh(call: Call, x: Value, ids: Tensor, weight: Value, positions: Tensor, shape: torch.Size) -> Value:
    """Multiply x (…, i, k) by a weight (…, k, j).

    Every j is a new unit that reads the units along k. Leading axes along which the weight changes belong to the
    unit as well (one matrix a head); over the others it is the same weight.
    """
    batch = torch.broadcast_shapes(ids.shape[:-2], positions.shape[:-2])
    ids = ids.expand(*batch, *ids.shape[-2:])
    *others, summed = (call.unions.varies(ids, axis) for axis in range(ids.ndim))
    if any(others) and not summed:
        call.ledger.freeze(weight, why="it serves every unit alike (it mixes positions, not units)")
        return call.units(ids.narrow(-1, 0, 1).expand(shape), shape=shape)
    positions = positions.expand(*batch, *positions.shape[-2:])
    own = [axis for axis in range(len(batch)) if not constant_along(positions, axis)]
    read = call.unions.along(ids, *own, ids.ndim - 1).transpose(-1, -2)  # (…, k, 1)
    heads = [batch[axis] if axis in own else 1 for axis in range(len(batch))]
    written = call.fresh(torch.Size([*heads, shape[-1]]).numel(), weight).view(*heads, 1, shape[-1])
    here = Value(positions.shape, param=weight.param, pos=positions, scaled=weight.scaled)
    occasion = call.ledger.use(here, (written, read), written)
    call.reading.read_by_weight(call.node, x, here, occasion, read)
    by = [occasion] if occasion is not None and occasion.written is not None else []
    return call.units(written.expand(shape), writers=by, shape=shape)
