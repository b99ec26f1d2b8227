"""Layers without some of their units: parameters sliced, widths told, norms and attention replaced by narrower ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from hatrack.masks.attention import heads, narrowed_attention
from hatrack.masks.grouped import grouped
from hatrack.masks.narrow import narrowed
from hatrack.masks.slicing import Kept, Uncuttable, extended, kept, taken
from hatrack.masks.unitmap import UnitMap, layer_of
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
    for layer, changed in touched.items():
        _refit(layer, changed)
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


def _refit(layer: nn.Module, changed: dict[str, Kept]) -> None:
    """Tell a layer of the widths that it has now."""
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, _ConvNd):
        _refit_convolution(layer)
    elif isinstance(layer, _NormBase):
        _refit_norm(layer, changed)
    elif isinstance(layer, nn.Embedding):
        layer.num_embeddings, layer.embedding_dim = layer.weight.shape
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = len(layer.weight)
    elif isinstance(layer, nn.RNNBase):
        _refit_recurrent(layer)
    elif isinstance(layer, nn.RNNCellBase):
        layer.input_size, layer.hidden_size = layer.weight_ih.shape[1], layer.weight_hh.shape[1]
    elif isinstance(layer, nn.MultiheadAttention | nn.Bilinear):
        raise Uncuttable(f"{type(layer).__name__} needs its full width")


def _refit_convolution(layer: _ConvNd) -> None:
    sizes = (layer.weight.shape[0], layer.weight.shape[1] * layer.groups)
    layer.in_channels, layer.out_channels = sizes if isinstance(layer, _ConvTransposeNd) else sizes[::-1]


def _refit_norm(layer: _NormBase, changed: dict[str, Kept]) -> None:
    (index,) = changed["weight"] if "weight" in changed else changed["bias"]
    assert index is not None
    layer.num_features = len(index)
    for name in ("running_mean", "running_var"):
        statistics = getattr(layer, name)
        if statistics is not None:
            setattr(layer, name, taken(statistics, [index]))


def _refit_recurrent(layer: nn.RNNBase) -> None:
    weights = dict(layer.named_parameters())
    layer.input_size = weights["weight_ih_l0"].shape[1]
    layer.hidden_size = weights["weight_hh_l0"].shape[0] // {"LSTM": 4, "GRU": 3}.get(layer.mode, 1)
    if layer.proj_size:
        layer.proj_size = weights["weight_hr_l0"].shape[0]
    for name, weight in weights.items():  # so that the layer's own list of them is made anew
        setattr(layer, name, weight)
