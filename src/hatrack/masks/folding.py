"""Gates folded into a network: what they close is written as zeros, and the rest stands on the inputs of layers.

A linear layer or a convolution whose weights are 0 for a closed unit needs no gate on its input. What else reads a
closed unit (a norm, a mean, attention) is given one that stays: a buffer, `open_units`, and a hook that multiplies by
it. The hook is a graph of torch.fx: it is copied and pickled with its module, and needs nothing of ours.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from hatrack.masks.gates import Gating
from hatrack.masks.slicing import extended, left, taken
from hatrack.masks.unitmap import Read, UnitMap

GATE = "open_units"
LINEAR = (nn.Linear,)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
CELLS = (nn.LSTMCell, nn.GRUCell, nn.RNNCell)


def without_unused(
    net: nn.Module, units: UnitMap, gates: Tensor, tensors: Mapping[str, Tensor], unused: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return a task's tensors, less the entries that it does not use: those are 0, or what `unused` has there."""
    found = dict(tensors)
    for name, used in units.used(gates.float()).items():
        other = unused.get(name, torch.zeros((), dtype=found[name].dtype, device=found[name].device))
        found[name] = torch.where(used > 0, found[name], other.to(found[name]))
    return found | Gating(net, units).weights(gates, found)


def ignored(layer: nn.Module, units: Tensor) -> Tensor:
    """Return where, of an input with these units at its entries, a layer has nothing but weights that are 0."""
    nowhere = torch.zeros(units.shape, dtype=torch.bool)
    if layer._forward_pre_hooks:  # what the user's own does to the input is not known here
        return nowhere
    zero, axis = zero_columns(layer)
    if zero is None or units.ndim <= abs(axis) or units.numel() > units.shape[axis]:
        return nowhere
    size = units.shape[axis]
    shape = [1] * units.ndim
    shape[axis] = size
    return (zero.all()[None] if size == 1 else zero).cpu().reshape(shape) if size in (1, len(zero)) else nowhere


def zero_columns(layer: nn.Module) -> tuple[Tensor | None, int]:
    """Return which entries along an axis of its input a layer multiplies by 0, and the axis."""
    kinds = [kind for kind in type(layer).__mro__ if kind.__module__.startswith("torch.nn.modules")]
    if not kinds or type(layer).forward is not kinds[0].forward:  # type: ignore[attr-defined]
        return None, -1
    if isinstance(layer, LINEAR):
        return (layer.weight == 0).all(0), -1
    if isinstance(layer, CONVOLUTIONS):
        grouped = layer.weight.unflatten(0, (layer.groups, -1)).flatten(3)  # group, row, column, place
        return (grouped == 0).all(3).all(1).flatten(), 1
    if isinstance(layer, TRANSPOSED):
        return (layer.weight == 0).flatten(1).all(1), 1
    if isinstance(layer, RECURRENT):
        firsts = [w for name, w in layer.named_parameters() if name in ("weight_ih_l0", "weight_ih_l0_reverse")]
        return torch.stack([(w == 0).all(0) for w in firsts]).all(0), -1
    if isinstance(layer, CELLS):
        return (layer.weight_ih == 0).all(0), -1
    return None, -1


def unread(net: nn.Module, units: UnitMap, head_reads: Tensor) -> Tensor:
    """Return which units nobody reads with a weight that is not 0; `head_reads`: whether the head reads each one."""
    met, needed = torch.zeros(units.size + 2, dtype=torch.bool), torch.zeros(units.size + 2, dtype=torch.bool)
    parameters = dict(net.named_parameters())
    for read in units.reads:
        where = read.units.cpu()
        met[where.flatten()] = True
        if read.module is not None:
            needed[where[~ignored(net.get_submodule(read.module), where)]] = True
        elif read.parameter is not None:
            values = parameters[read.parameter].detach().cpu()
            needed[where.expand(values.shape)[values != 0]] = True
    met[units.features.flatten().cpu()] = True
    return (met & ~needed)[: units.size] & ~head_reads


def put_gates(net: nn.Module, units: UnitMap, gates: Tensor, gone: Tensor) -> None:
    """Put the gates that are still needed onto the inputs of modules, of which the units in `gone` are taken out."""
    ends = extended(gates.cpu(), 1)
    by_module: dict[str, list[Read]] = {}
    for read in units.reads:
        if read.module is not None:
            by_module.setdefault(read.module, []).append(read)
    for path, reads in by_module.items():
        module = net.get_submodule(path)
        found, needed = [], False
        for read in reads:
            where = read.units.cpu()
            where = taken(where, left([where], where.shape, gone))
            gate = ends[where]
            needed |= not bool(((gate == 1) | ((gate == 0) & ignored(module, where))).all())
            found.append(gate)
        if needed:
            _gate(module, found)


def _gate(module: nn.Module, gates: list[Tensor]) -> None:
    """Let every call of a module multiply its input by the next of `gates`."""
    same = all(gate.shape == gates[0].shape and torch.equal(gate, gates[0]) for gate in gates)
    device = next((t.device for t in (*module.parameters(), *module.buffers())), None)
    value = gates[0] if same else torch.stack(torch.broadcast_tensors(*gates))
    module.register_buffer(GATE, value.contiguous().to(device) if device else value.contiguous())
    module.register_forward_pre_hook(_hook(value.dtype == torch.bool, same), prepend=True)


def _hook(boolean: bool, same: bool) -> fx.GraphModule:
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    module: Any
    args: Any
    module, args = (fx.Proxy(graph.placeholder(name), tracer) for name in ("module", "args"))
    held: Any = getattr(module, GATE)
    gate = held if same else held[0].clone()
    x, others = operator.getitem(args, 0), operator.getitem(args, slice(1, None))
    gated = torch.where(gate, x, x.new_zeros(())) if boolean else x * gate
    if not same:
        held.copy_(held.roll(-1, 0))  # the next call's stands first
    graph.output(operator.add((gated,), others).node)
    return fx.GraphModule(nn.Module(), graph)
