"""A network with more units: the reverse of cutting it (slicing.py), and held to it.

A wide network is made by giving tensors longer axes (widths.py) and is then traced like any other. What its map says is
what is believed: taking the new units out of it by `kept` must leave, along every axis, as many places as there were,
with the units that stood there, in their order. So old entries are found by the code that cuts networks down, wherever
a flatten, a concatenation or the gates of an LSTM have put the new ones between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from hatrack.masks.slicing import Kept, Uncuttable, kept, left, taken
from hatrack.masks.told import tell
from hatrack.masks.unitmap import STATISTICS, UnitMap, Use
from hatrack.masks.widths import Part


class Fixed(Exception):
    """These sites cannot be widened; in words."""


@dataclass(frozen=True)
class Places:
    """Where units and entries of a network stand in it now that it is wider.

    units  the number that each unit has now, of `size`
    kept   the places that were there before along each axis of a tensor (None: all), for tensors that are larger now
    """

    units: Tensor
    size: int
    kept: dict[str, Kept]

    def spread_units(self, values: Tensor) -> Tensor:
        """Return a vector over the units of before as one over those of now: 0, or closed, at new ones."""
        wide = values.new_zeros(self.size)
        return wide.index_copy(0, self.units.to(values.device), values)

    def taken(self, name: str, tensor: Tensor) -> Tensor:
        """Return the entries that a tensor had before."""
        return taken(tensor, self.kept[name]) if name in self.kept else tensor

    def spread(self, name: str, values: Tensor, into: Tensor) -> Tensor:
        """Return `into`, of the shape of now, with these values at the entries of before."""
        if name not in self.kept:
            return values
        places = [
            torch.arange(n) if index is None else index
            for n, index in zip(into.shape, self.kept[name], strict=True)
        ]  # fmt: skip
        wide = into.clone(memory_format=torch.contiguous_format)
        wide[torch.meshgrid(*(p.to(into.device) for p in places), indexing="ij")] = values.to(into.dtype)
        return wide

    def then(self, later: Places) -> Places:
        """Return where all of this stands after a further widening."""
        found = dict(later.kept)
        for name, mine in self.kept.items():
            after = later.kept.get(name, [None] * len(mine))
            found[name] = [a if m is None else m if a is None else a[m] for m, a in zip(mine, after, strict=True)]
        return Places(later.units[self.units], later.size, found)


def places(old: UnitMap, wide: UnitMap, parts: Sequence[Part], more: Mapping[Part, int]) -> Places:
    """Return where what a network had before is now; raise where the wide map is not the old one with more units.

    The units of a part stand as they stood, one after the other, and new ones behind them.
    """
    added = {site.name: sum(more.get(part, 0) for part in parts if part.site == site.name) for site in old.sites}
    if [(s.name, s.size + added[s.name]) for s in old.sites] != [(s.name, s.size) for s in wide.sites]:
        raise Fixed("it has other units then")
    units, shift = torch.arange(old.size), 0
    for part in parts:
        units[part.first : part.first + part.size] += shift
        shift += more.get(part, 0)
    new = torch.ones(wide.size, dtype=torch.bool)
    new[units] = False
    back = torch.full((wide.size,), ELSE)
    back[units] = torch.arange(old.size)
    found: dict[str, Kept] = {}
    try:
        for name, uses in wide.uses.items():
            keep = kept(uses, wide.shapes[name], new)
            _require_same(name, old.uses.get(name, []), uses, keep, old.shapes[name], back)
            if any(index is not None for index in keep):
                found[name] = keep
        for layer, channels in wide.statistics.items():
            uses = [Use((channels,))]
            keep = kept(uses, channels.shape, new)
            _require_same(layer, [Use((old.statistics[layer],))], uses, keep, old.statistics[layer].shape, back)
            for statistic in STATISTICS if keep[0] is not None else ():
                found[f"{layer}.{statistic}" if layer else statistic] = keep
        keep = left([wide.features], wide.features.shape, new)
    except Uncuttable as error:
        raise Fixed(str(error)) from None
    uses = [Use((wide.features,))]
    _require_same("the features", [Use((old.features,))], uses, keep, old.features.shape, back)
    return Places(units, wide.size, found)


ELSE = -9  # in the place of a unit that was not there before


def _require_same(name: str, old: list[Use], wide: list[Use], keep: Kept, shape: torch.Size, back: Tensor) -> None:
    """Require that the places which stay have the units that stood there before."""
    for then, now in zip(old, wide, strict=True):
        for before, ids in zip(then.units, now.units, strict=True):
            ids = ids.cpu().reshape((1,) * (len(shape) - ids.ndim) + tuple(ids.shape))
            for axis, index in enumerate(keep):
                if index is not None and ids.shape[axis] > 1:
                    ids = ids.index_select(axis, index)
            ids = torch.where(ids >= 0, back[ids.clamp_min(0)], ids)
            same = torch.broadcast_shapes(ids.shape, before.shape, shape) == shape
            if not same or not bool((ids == before.cpu()).all()):
                raise Fixed(f"{name} would be read in another order")


def remembered(net: nn.Module, names: Iterable[str]) -> Callable[[], None]:
    """Return what gives these tensors their values of now back, and all layers their widths."""
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    values = {name: tensors[name].data for name in names}
    told = [(m, {k: v for k, v in vars(m).items() if _is_width(k, v)}) for m in net.modules()]

    def undo() -> None:
        for name, value in values.items():
            _give(tensors[name], value)
        for layer, known in told:
            vars(layer).update(known)

    return undo


def _is_width(name: str, value: Any) -> bool:
    return not name.startswith("_") and isinstance(value, int | tuple) and not isinstance(value, bool)


def resize(net: nn.Module, shapes: Mapping[str, torch.Size]) -> None:
    """Give tensors other shapes, in place and without values (NaN), and tell their layers."""
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    changed = {id(tensors[name]) for name in shapes}
    layers = [
        m for m in net.modules() if any(id(t) in changed for t in (*m._parameters.values(), *m._buffers.values()))
    ]
    layers += [m for m in net.modules() if isinstance(m, nn.MultiheadAttention) and m.out_proj in layers]
    each = [_per_group(layer) for layer in layers]
    for name, shape in shapes.items():
        _give(tensors[name], torch.full(shape, torch.nan, dtype=tensors[name].dtype, device=tensors[name].device))
    for layer, size in zip(layers, each, strict=True):
        if isinstance(layer, _ConvNd) and size:
            layer.groups = layer.weight.shape[0] // size
        elif isinstance(layer, nn.GroupNorm) and size:
            layer.num_groups = layer.weight.shape[0] // size
        tell(layer)


def fill(net: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give tensors these values, of any shape, in place: whoever holds on to a tensor has the new one."""
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    for name, value in values.items():
        _give(tensors[name], value.to(tensors[name]))


def _give(tensor: Tensor, value: Tensor) -> None:
    """Let a tensor hold a value of another shape.

    A graph that is still alive, as a loop's last loss, has autograd remember the old shape, until the type changes.
    """
    tensor.grad = None
    other = torch.float16 if value.dtype != torch.float16 else torch.float32
    tensor.data = torch.empty(0, dtype=other, device=value.device)
    tensor.data = value


def _per_group(layer: nn.Module) -> int:
    """Return how many rows a group has, of a layer that gets more groups and not larger ones."""
    if isinstance(layer, _ConvNd) and layer.groups > 1:
        return layer.weight.shape[0] // layer.groups
    if isinstance(layer, nn.GroupNorm) and layer.num_groups > 1:
        return layer.num_channels // layer.num_groups
    return 0


@contextmanager
def observing(net: nn.Module) -> Iterator[None]:
    """Let norms that have no parameters find out, in a forward pass inside, how wide they are."""
    seen: dict[nn.Module, dict[str, Any]] = {}
    hooks = [
        layer.register_forward_pre_hook(partial(_observe, seen))
        for layer in net.modules()
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | _NormBase) and layer.weight is None
    ]
    try:
        yield
        for layer, widths in seen.items():  # once more: whoever leaves no trace of a forward pass has put them back
            vars(layer).update(widths)
    finally:
        for hook in hooks:
            hook.remove()


def _observe(seen: dict[nn.Module, dict[str, Any]], layer: Any, args: tuple[Any, ...]) -> None:
    x = args[0]
    if isinstance(layer, nn.GroupNorm):
        size, groups = layer.num_channels // layer.num_groups, layer.num_groups
        whole = groups > 1 and x.shape[1] % size == 0
        seen[layer] = {"num_channels": x.shape[1], "num_groups": x.shape[1] // size if whole else groups}
    elif isinstance(layer, _NormBase):
        seen[layer] = {"num_features": x.shape[1] if x.ndim > 1 else layer.num_features}
    else:
        seen[layer] = {"normalized_shape": tuple(x.shape[x.ndim - len(layer.normalized_shape) :])}
    vars(layer).update(seen[layer])
