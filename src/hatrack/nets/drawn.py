"""What new entries of a network begin with: as its layers would draw them, were they made at that width.

Every layer draws anew, as its `reset_parameters` does, then what holds it, where that has such a method; of a built-in
network all layers, as `init.py` says. Entries of bare parameters, which nobody draws, come from a normal distribution
with mean and deviation of the parameter as it was handed over; where that had one value, they have it, too.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hatrack.nets.init import initialise


@torch.no_grad()
def drawn(net: nn.Module, names: Collection[str], initial: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return new values for these tensors of `net`, whose own are not looked at; `initial`: as they were handed over.

    On the host, so that every device gets the same.
    """
    net = copy.deepcopy(net).to("cpu")
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    changed = {id(tensors[name]) for name in names}
    for name in names:
        tensors[name].fill_(torch.nan)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in reversed(list(net.modules())):  # what holds others comes after them
            reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            held = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
            if callable(reset) and held & changed:
                reset()
        init: Any = getattr(net, "hatrack_init", None)
        if init is not None:
            initialise(net, *init)
        for name in names:
            tensor, first = tensors[name], initial[name].detach().to("cpu", torch.float64)
            missing = tensor.isnan()
            if bool(missing.any()):
                spread = float(first.std()) if first.numel() > 1 else 0.0
                values = float(first.mean()) + spread * torch.randn(tensor.shape)
                tensor.copy_(torch.where(missing, values, tensor))
    return {name: tensors[name].detach().clone() for name in names}
