"""Take units out of a network: its parameters sliced by the unit map, its layers told of their new widths.

An entry goes if under every use of its parameter one of its units goes; along each axis of a parameter, what goes is
what has no entry left. Which units may go is tried by whoever calls this: code of the user's that knows a width by
heart, a shuffle or heads of attention that would be left uneven do not bear it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from hatrack.masks.grouped import grouped
from hatrack.masks.narrow import narrowed
from hatrack.masks.unitmap import ON, UnitMap, Use, layer_of
from hatrack.swap import Slots

NARROWED = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
Kept = list[Tensor | None]  # along each axis, the places that stay; None: all


class Uncuttable(Exception):
    """A layer cannot do without these units; in words."""


def extended(values: Tensor, on: float) -> Tensor:
    """Return a vector over units with what stands at ON behind it, and at OFF its contrary."""
    return torch.cat([values, values.new_tensor([1 - on, on])])


def left(units: Sequence[Tensor], shape: Sequence[int], gone: Tensor) -> Kept:
    """Return what stays along each axis of a tensor at whose entries all these units must be on."""
    return kept([Use(tuple(units))], shape, gone)


def kept(uses: Sequence[Use], shape: Sequence[int], gone: Tensor) -> Kept:
    """Return what stays along each axis of a parameter when the units marked in `gone` go."""
    ends = extended(gone, 0)
    hit = torch.zeros((1,) * len(shape), dtype=torch.bool)
    away = torch.ones((1,) * len(shape), dtype=torch.bool)
    for use in uses:
        by_unit = reduce(torch.logical_or, (ends[units.cpu()] & (units.cpu() >= ON) for units in use.units))
        never = reduce(torch.logical_or, (ends[units.cpu()] for units in use.units))
        hit, away = hit | by_unit, away & never
    found: Kept = []
    for axis in range(len(shape)):
        others = [a for a in range(len(shape)) if a != axis]
        empty = away.expand(shape).all(others) if others else away.expand(shape)
        empty = empty & (hit.expand(shape).any(others) if others else hit.expand(shape))
        if bool(empty.all()):
            raise Uncuttable("nothing would be left")
        found.append((~empty).nonzero().flatten() if bool(empty.any()) else None)
    return found


def taken(tensor: Tensor, keep: Kept) -> Tensor:
    """Return the entries of a tensor that stay."""
    for axis, index in enumerate(keep):
        if index is not None:
            tensor = tensor.index_select(axis, index.to(tensor.device))
    return tensor.contiguous()


def slice_layers(net: nn.Module, units: UnitMap, gone: Tensor) -> None:
    """Take the units marked in `gone` out of `net`, in place."""
    slots, owners = Slots(net), dict(net.named_modules(remove_duplicate=False))
    touched: dict[nn.Module, dict[str, Kept]] = {}
    in_groups = {layer.parameter: layer for layer in grouped(net, units)}
    for name, parameter in dict(net.named_parameters()).items():
        owner = owners[layer_of(name)]
        if isinstance(owner, _ConvNd) and owner.groups > 1 and name.endswith(".weight"):
            if name in in_groups:
                weight, owner.groups = in_groups[name].cut(parameter.data, gone)
                slots.put({name: nn.Parameter(weight.contiguous(), requires_grad=False)})
                touched.setdefault(owner, {})
            continue
        uses = units.uses.get(name)
        keep = kept(uses, parameter.shape, gone) if uses else []
        if any(index is not None for index in keep):
            slots.put({name: nn.Parameter(taken(parameter.data, keep), requires_grad=False)})
            for path, attribute in slots.places(name):
                touched.setdefault(owners[path], {})[attribute] = keep
    for layer, changed in touched.items():
        _refit(layer, changed)
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
