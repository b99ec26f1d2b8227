"""Norms over some of their units: the others are closed, and count as the zeros that they are.

Of C units k are left, their values x; the C − k others are 0:

    mean = Σ x / C,   variance = (Σ (x − mean)² + (C − k)·mean²) / C,   RMS² = Σ x² / C

A group norm does so group by group, over all places of its units. torch.fx writes them down, so that what is left needs
nothing of ours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn


def narrowed(layer: nn.Module, keep: Tensor) -> nn.Module | None:
    """Return a norm whose weights are cut already over the units in `keep` alone; None for what is no such norm."""
    made: nn.Module
    if isinstance(layer, nn.LayerNorm) and type(layer).forward is nn.LayerNorm.forward:
        made = _Layer(layer, layer.normalized_shape[-1], layer.eps, keep)
    elif isinstance(layer, nn.RMSNorm) and type(layer).forward is nn.RMSNorm.forward:
        eps = torch.finfo(layer.weight.dtype).eps if layer.eps is None else layer.eps
        made = _RootMeanSquare(layer, layer.normalized_shape[-1], eps, keep)
    elif isinstance(layer, nn.GroupNorm) and type(layer).forward is nn.GroupNorm.forward:
        made = _Group(layer, layer.num_channels // layer.num_groups, layer.eps, keep)
    else:
        return None
    return written(made)


def written(module: nn.Module, tracer: fx.Tracer | None = None) -> fx.GraphModule:
    """Return a module as torch.fx writes it down: of no class of ours."""
    graph = (tracer or fx.Tracer()).trace(module)
    for node in graph.nodes:
        node.type = None  # an annotation that is a text cannot be pickled
    graph._tracer_cls = None  # a pickle would name it
    return fx.GraphModule(module, graph)


class _Norm(nn.Module):
    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: Any, width: int, eps: float, keep: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, getattr(layer, "bias", None)
        self.width, self.eps, self.closed = width, eps, width - len(keep)

    def scaled(self, x: Tensor) -> Tensor:
        x = x * self.weight
        return x if self.bias is None else x + self.bias


class _Layer(_Norm):
    def forward(self, x: Tensor) -> Tensor:
        mean = x.sum(-1, keepdim=True) / self.width
        apart = x - mean
        squares = apart.square().sum(-1, keepdim=True) + self.closed * mean.square()
        return self.scaled(apart * (squares / self.width + self.eps).rsqrt())


class _RootMeanSquare(_Norm):
    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x * (x.square().sum(-1, keepdim=True) / self.width + self.eps).rsqrt())


class _Group(_Norm):
    member: Tensor
    missing: Tensor

    def __init__(self, layer: nn.GroupNorm, width: int, eps: float, keep: Tensor) -> None:
        super().__init__(layer, width, eps, keep)
        group = (keep // self.width).to(layer.weight.device)
        member = torch.nn.functional.one_hot(group, layer.num_groups).to(layer.weight)
        self.register_buffer("member", member)  # which unit is in which group
        self.register_buffer("missing", self.width - member.sum(0))

    def forward(self, x: Tensor) -> Tensor:
        y = x.reshape(x.shape[0], x.shape[1], -1)
        places = y.shape[2]
        mean = y.sum(2) @ self.member / (self.width * places)
        apart = y - (mean @ self.member.t()).unsqueeze(2)
        squares = apart.square().sum(2) @ self.member + self.missing * places * mean.square()
        inverse = (squares / (self.width * places) + self.eps).rsqrt() @ self.member.t()
        y = apart * inverse.unsqueeze(2) * self.weight.unsqueeze(1)
        y = y if self.bias is None else y + self.bias.unsqueeze(1)
        return y.reshape(x.shape)
