"""What a finished task makes of inputs: its logits, and the features under its mask that they come from.

Features are what the task's head reads and, where it has gates on units, what the layers before it read under these:
its open units, each averaged over the positions at which it stands. Of units that several layers read, the last counts.
Of a method whose answers take several passes through the network those count that its task's gates alone would make.
Without gates features are what the head reads, and the logits where it is asked more than once, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import ON
from hatrack.methods.base import Method
from hatrack.nets.model import Model

WIDEST = 2048  # features at most: what is read last comes first


class Evidence(NamedTuple):
    """Of every sample: the task's features (a row), and what its head gives."""

    features: Tensor
    logits: Tensor


@torch.no_grad()
def evidence(method: Method, x: Any, task: int) -> Evidence:
    """Return what a finished task makes of prepared inputs."""
    model, gates = method.model, method.unit_gates(task)
    head = model.heads[task]
    units = {} if gates is None else {**_inner(model), head: [model.units.features]}
    seen: dict[nn.Module, list[Tensor]] = {module: [] for module in (*units, head)}

    def note(module: nn.Module, args: Any) -> None:
        if module in seen:
            seen[module].append(args[0])

    hook = register_module_forward_pre_hook(note)  # one on a module would go along where a method copies the module
    try:
        logits = method.predict(x, task)
        if gates is None:
            read = seen[head]
            return Evidence((head.units_last(read[0]) if len(read) == 1 else logits).flatten(1).float(), logits)
        if not _once(units, seen):  # it may go a shorter way to the same answers
            for inputs in seen.values():
                inputs.clear()
            model.logits(x, task, gates)
    finally:
        hook.remove()
    reads = [pair for module, each in units.items() for pair in zip(each, seen[module], strict=True)]
    return Evidence(_open(reads, gates > 0.5), logits)


def _once(units: dict[nn.Module, list[Tensor]], seen: dict[nn.Module, list[Tensor]]) -> bool:
    """Whether the network was gone through once, with all its units."""
    if any(len(seen[module]) != len(each) for module, each in units.items()):
        return False
    pairs = ((ids, x) for module, each in units.items() for ids, x in zip(each, seen[module], strict=True))
    return all(one in (1, other) for ids, x in pairs for one, other in _axes(compact(ids), x))


def _axes(ids: Tensor, x: Tensor) -> Iterator[tuple[int, int]]:
    """Yield how long each axis is that the two have in common, from the last one on."""
    return zip(reversed(ids.shape), reversed(x.shape), strict=False)


def _inner(model: Model) -> dict[nn.Module, list[Tensor]]:
    """Return which units each gated layer reads, call by call."""
    modules = dict(model.net.named_modules(remove_duplicate=False))
    found: dict[nn.Module, list[Tensor]] = {}
    for read in model.units.reads:
        if read.module is not None:
            found.setdefault(modules[read.module], []).append(read.units)
    return found


def _open(reads: list[tuple[Tensor, Tensor]], gates: Tensor) -> Tensor:
    """Return the open units of what was read, each once a read, those of the first layers left out of many."""
    told: set[tuple[int, ...]] = set()
    columns: list[Tensor] = []
    width = 0
    for units, features in reversed(list(_by_unit(reads))):
        if (key := tuple(units.tolist())) in told:
            continue
        told.add(key)
        opened = features[:, gates[units.to(gates.device)]]
        if columns and width + opened.shape[1] > WIDEST:
            break
        columns.append(opened)
        width += opened.shape[1]
    return torch.cat(columns[::-1], dim=1)


def _by_unit(reads: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the units of each read, and their mean over positions, a row a sample."""
    for units, x in reads:
        ids = compact(units).cpu()
        ids = ids.reshape((1,) * (x.ndim - ids.ndim) + tuple(ids.shape))
        if ids.shape[0] != 1:  # samples do not stand along the first axis
            continue
        where = [axis for axis in range(1, x.ndim) if ids.shape[axis] == 1]
        columns = (x.float().mean(where, keepdim=True) if where else x.float()).flatten(1)
        each, place, counts = ids.flatten().unique(return_inverse=True, return_counts=True)
        columns = columns[:, place.argsort(stable=True).to(x.device)]
        if bool((counts == counts[0]).all()):
            means = columns.unflatten(1, (len(each), int(counts[0]))).mean(2)
        else:
            means = torch.stack([part.mean(1) for part in columns.split(counts.tolist(), dim=1)], dim=1)
        known = each != ON
        yield each[known], means[:, known.to(x.device)]
