"""Layers without some of their units: parameters sliced, widths told, norms and attention replaced by narrower ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hatrack.masks.attention import heads, narrowed_attention
from hatrack.masks.grouped import grouped
from hatrack.masks.narrow import narrowed
from hatrack.masks.slicing import Kept, Uncuttable, extended, kept, taken
from hatrack.masks.told import tell
from hatrack.masks.unitmap import STATISTICS, UnitMap, Use, layer_of
from hatrack.swap import Slots

NARROWED = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)


def slice_layers(net: nn.Module, units: UnitMap, gone: Tensor) -> None:
    """Take the units marked in `gone` out of `net`, in place."""
    if not bool(gone.any()):
        return
    slots, owners = Slots(net), dict(net.named_modules(remove_duplicate=False))
    touched: dict[nn.Module, dict[str, Kept]] = {}
    in_groups, attention = {layer.parameter: layer for layer in grouped(net, units)}, heads(net, units)
    for name, parameter in dict(net.named_parameters()).items():
        owner = owners[layer_of(name)]
        if isinstance(owner, _ConvNd) and owner.groups > 1 and name.endswith(".weight"):
            if name in in_groups:
                weight, owner.groups = in_groups[name].cut(parameter.data, gone)
                slots.put({name: nn.Parameter(weight.contiguous(), requires_grad=False)})
                touched.setdefault(owner, {})
            continue
        if layer_of(name) in attention:
            continue
        uses = units.uses.get(name)
        keep = kept(uses, parameter.shape, gone) if uses else []
        if any(index is not None for index in keep):
            slots.put({name: nn.Parameter(taken(parameter.data, keep), requires_grad=False)})
            for path, attribute in slots.places(name):
                touched.setdefault(owners[path], {})[attribute] = keep
    for path, channels in units.statistics.items():
        keep = kept([Use((channels,))], channels.shape, gone)
        for name in STATISTICS if keep[0] is not None else ():
            if name in owners[path]._buffers:
                setattr(owners[path], name, taken(owners[path].get_buffer(name), keep))
                touched.setdefault(owners[path], {})
    for layer in touched:
        _refit(layer)
    for path, of_heads in attention.items():
        layer, uses = owners[path], units.uses[of_heads.parameter]
        units_of = torch.cat([t.flatten() for use in uses for t in use.units]).cpu()
        if isinstance(layer, nn.MultiheadAttention) and bool(extended(gone, 0)[units_of[units_of >= 0]].any()):
            new = narrowed_attention(layer, uses, of_heads, gone)
            for other in [other for other, held in owners.items() if held is layer]:
                net.set_submodule(other, new)
    for path, layer in owners.items():
        if layer in touched and isinstance(layer, NARROWED):
            net.set_submodule(path, _narrowed(layer, touched[layer]))


def _narrowed(layer: nn.Module, changed: dict[str, Kept]) -> nn.Module:
    keep = changed.get("weight", [None])
    new = narrowed(layer, keep[0]) if len(keep) == 1 and keep[0] is not None else None
    if new is None or layer._forward_hooks or layer._forward_pre_hooks:
        raise Uncuttable(f"{type(layer).__name__} needs its full width")
    return new


def _refit(layer: nn.Module) -> None:
    """Tell a layer of the widths that it has now; one whose meaning would be another needs them all."""
    if isinstance(layer, nn.MultiheadAttention | nn.Bilinear):
        raise Uncuttable(f"{type(layer).__name__} needs its full width")
    if not isinstance(layer, NARROWED):
        tell(layer)
