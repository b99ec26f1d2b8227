"""Open units that are the same for every input: all weights that write them are 0, and φ(bias) is left.

Where such a unit is 0 at every read it can be closed. Where it is a number c and all that read it are linear, W·c goes
into their biases first; of convolutions only of those without padding, at whose border c would end. That a unit is
constant is seen from the weights, and on inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from hatrack.masks.folding import CONVOLUTIONS, zero_columns
from hatrack.masks.unitmap import Read, UnitMap


@dataclass
class Folded:
    """Units that can be closed once these are added: to biases of the network by name, and to the head's."""

    units: list[int] = field(default_factory=list)
    biases: dict[str, Tensor] = field(default_factory=dict)
    head: Tensor | float = 0.0


def unwritten(net: nn.Module, units: UnitMap) -> Tensor:
    """Return which units weights write that are all 0."""
    met, alive = (torch.zeros(units.size + 2, dtype=torch.bool) for _ in range(2))
    for name, weight in net.named_parameters():
        for use in units.uses.get(name, []) if weight.ndim > 1 else []:
            written = use.units[0].cpu().expand(weight.shape)
            met[written.flatten()] = True
            alive[written[weight.cpu() != 0] if len(use.units) > 1 else written.flatten()] = True
    return (met & ~alive)[: units.size]


def fold_constants(
    net: nn.Module, units: UnitMap, open_units: Tensor, head: nn.Linear, run: Callable[[nn.Module], Tensor]
) -> Folded:
    """Return the constant units that can be closed, and what takes their place; `run` gives the features."""
    found, candidates = Folded(), (unwritten(net, units) & open_units.cpu()).nonzero().flatten().tolist()
    if not candidates:
        return found
    seen: dict[str, list[Tensor]] = {read.module: [] for read in units.reads if read.module is not None}
    hooks = [net.get_submodule(p).register_forward_pre_hook(_noting(kept)) for p, kept in seen.items()]
    try:
        features = run(net)
    finally:
        for hook in hooks:
            hook.remove()
    for unit in candidates:
        added = [_at(net, read, unit, seen) for read in units.reads if bool((read.units == unit).any())]
        last = _at_head(head, features, units.features.cpu() == unit)
        if last is None or any(part is None for part in added):
            continue
        found.units.append(unit)
        found.head = found.head + last
        for name, amount in (pair for part in added if part is not None for pair in part.items()):
            found.biases[name] = found.biases.get(name, 0) + amount
    return found


def _noting(kept: list[Tensor]) -> Callable[[nn.Module, Any], None]:
    return lambda module, args: kept.append(args[0].detach())


def _at(net: nn.Module, read: Read, unit: int, seen: dict[str, list[Tensor]]) -> dict[str, Tensor] | None:
    """Return what a read of a constant unit adds to biases; None where that cannot be had."""
    if read.module is None or len(seen[read.module]) != 1:
        return None
    layer, (x,) = net.get_submodule(read.module), seen[read.module]
    where = (read.units == unit).to(x.device)
    if bool((x[where.expand(x.shape)] == 0).all()):
        return {}
    zero, axis = zero_columns(layer)
    plain = isinstance(layer, nn.Linear) or (
        isinstance(layer, CONVOLUTIONS) and layer.groups == 1 and set(layer.padding) == {0}
    )
    if zero is None or not plain or where.numel() > where.shape[axis] or layer._forward_pre_hooks:
        return None
    constant = _constant(x.movedim(axis, -1), where.flatten().expand(x.shape[axis]))
    name = f"{read.module}.bias"
    if constant is None or name not in dict(net.named_parameters()):
        return None
    weight: Tensor = layer.weight  # type: ignore[assignment]
    columns = weight.flatten(2).sum(2) if weight.ndim > 2 else weight
    return {name: columns[:, where.flatten().expand(x.shape[axis])] @ constant}


def _at_head(head: Any, features: Tensor, where: Tensor) -> Tensor | float | None:
    if not bool(where.any()):
        return 0.0
    where = where.expand(features.shape[1:]).to(features.device)
    if head.axis is None:
        constant, columns = _constant(features.flatten(1), where.flatten()), where.flatten()
    else:
        place = 1 if head.axis == 1 else -1
        columns = where.movedim(0 if place == 1 else -1, -1).reshape(-1, head.in_features).any(0)
        constant = _constant(features.movedim(place, -1), columns)
    return None if constant is None else head.weight.detach()[:, columns] @ constant


def _constant(x: Tensor, columns: Tensor) -> Tensor | None:
    """Return what stands in these entries of the last axis, if that is the same everywhere."""
    rows = x[..., columns].reshape(-1, int(columns.sum()))
    return rows[0] if bool((rows == rows[0]).all()) else None
