"""What a finished task makes of inputs: its logits, and the features under its mask that they come from.

Features are what the task's head reads and, where it has gates on units, what the layers before it read under these:
its open units, each averaged over the positions at which it stands. Of units that several layers read, the last counts;
layers that do not read a row a sample (sequences with time first, weights that go through a layer) are left out.
Of a method whose answers take several passes through the network those count that its task's gates alone would make.
Without gates features are what the head reads, and the logits where it is asked more than once, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import ON, UnitMap
from hatrack.methods.base import Method
from hatrack.nets.model import Model
from hatrack.tree import mapped

TRIED = (3, 5)  # samples, to see where they stand
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
    inner = [] if gates is None else _reads(model.width(task))
    seen: dict[nn.Module, list[Tensor]] = {head: [], **{read.module: [] for read in inner if read.module is not None}}

    def note(module: nn.Module, args: Any) -> None:
        if module in seen:
            seen[module].append(args[0])

    def read() -> list[Tensor] | None:
        calls = {module: iter(inputs) for module, inputs in seen.items()}
        found = [next(calls[head if each.module is None else each.module], None) for each in inner]
        whole = all(x is not None and each.fits(x) for each, x in zip(inner, found, strict=True))
        once = sum(map(len, seen.values())) == len(inner)
        return [x for x in found if x is not None] if whole and once else None

    hook = register_module_forward_pre_hook(note)  # one on a module would go along where a method copies the module
    try:
        logits = method.predict(x, task)
        if gates is None:
            at_head = seen[head]
            return Evidence((head.units_last(at_head[0]) if len(at_head) == 1 else logits).flatten(1).float(), logits)
        found = read()
        if found is None:  # it may go a shorter way to the same answers
            for inputs in seen.values():
                inputs.clear()
            model.logits(x, task, gates)
            found = read()
    finally:
        hook.remove()
    return Evidence(logits.flatten(1).float() if found is None else _open(inner, found, gates > 0.5), logits)


class _Read:
    """Units that a layer reads at a call, or the head (no module): how to average them over where they stand."""

    def __init__(self, units: Tensor, module: nn.Module | None = None) -> None:
        self.module = module
        self._ids = compact(units).cpu()
        each, place, self._counts = self._ids.flatten().unique(return_inverse=True, return_counts=True)
        self._order = place.argsort(stable=True)
        self._known = each != ON
        self.units = each[self._known]
        self.key = tuple(self.units.tolist())
        self.by_sample = module is None  # whether the first axis of what is read is that of samples

    def fits(self, x: Tensor) -> bool:
        """Whether all units are in x, behind an axis of samples."""
        ids = self._ids.shape
        ahead = ids[0] if len(ids) == x.ndim else 1
        axes = zip(reversed(ids), reversed(x.shape), strict=False)
        return len(ids) <= x.ndim and ahead == 1 and all(one in (1, other) for one, other in axes)

    def means(self, x: Tensor) -> Tensor:
        """Return the mean of every unit over its positions, a row a sample."""
        ids = (1,) * (x.ndim - self._ids.ndim) + tuple(self._ids.shape)
        where = [axis for axis in range(1, x.ndim) if ids[axis] == 1]
        columns = (x.float().mean(where, keepdim=True) if where else x.float()).flatten(1)
        columns = columns[:, self._order.to(x.device)]
        counts = self._counts
        if bool((counts == counts[0]).all()):
            found: Tensor = columns.reshape(len(x), len(counts), -1).mean(2)
        else:
            found = torch.stack([part.mean(1) for part in columns.split(counts.tolist(), dim=1)], dim=1)
        return found[:, self._known.to(x.device)]


_KNOWN: WeakKeyDictionary[Model, tuple[UnitMap, list[_Read]]] = WeakKeyDictionary()


def _reads(model: Model) -> list[_Read]:
    """Return every read that goes through a module, in forward order, the head's last."""
    if model not in _KNOWN or _KNOWN[model][0] is not model.units:
        modules = dict(model.net.named_modules(remove_duplicate=False))
        inner = [_Read(read.units, modules[read.module]) for read in model.units.reads if read.module is not None]
        for read, rows in zip(inner, _rows(model, inner), strict=True):
            read.by_sample = rows == TRIED
        _KNOWN[model] = model.units, [*inner, _Read(model.units.features)]
    return _KNOWN[model][1]


def _rows(model: Model, inner: Sequence[_Read]) -> list[tuple[int | None, ...]]:
    """Return how long the first axis of what each layer reads is, for as many samples as are TRIED."""
    met: list[dict[nn.Module | None, list[int]]] = []

    def note(module: nn.Module, args: Any) -> None:
        met[-1].setdefault(module, []).append(len(args[0]) if args and isinstance(args[0], Tensor) else 0)

    hook = register_module_forward_pre_hook(note)
    try:
        for count in TRIED:
            met.append({})
            model.try_out(mapped(partial(torch.repeat_interleave, repeats=count, dim=0), model.example))
    except Exception:  # whatever a network raises that takes no other batch: only what the head reads is believed
        return [()] * len(inner)
    finally:
        hook.remove()
    calls = [{module: iter(lengths) for module, lengths in each.items()} for each in met]
    return [tuple(next(each.get(read.module, iter(())), None) for each in calls) for read in inner]


def _open(reads: Sequence[_Read], inputs: Sequence[Tensor], gates: Tensor) -> Tensor:
    """Return the open units of what was read, those of the first layers left out of many."""
    columns: dict[tuple[int, ...], Tensor] = {}
    width = 0
    for read, x in zip(reversed(reads), reversed(inputs), strict=True):
        opened = gates[read.units.to(gates.device)]
        count = int(opened.sum())
        if read.key in columns or not count or not read.by_sample:
            continue
        if columns and width + count > WIDEST:
            break
        columns[read.key] = read.means(x)[:, opened]
        width += count
    return torch.cat([*reversed(columns.values())], dim=1) if columns else inputs[-1].new_zeros(len(inputs[-1]), 0)
