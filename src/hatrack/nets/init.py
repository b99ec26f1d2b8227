"""Initialisation as in HAT's paper: Xavier uniform weights, zero biases."""

from __future__ import annotations

from torch import nn


def xavier(net: nn.Module, branches: int = 1) -> nn.Module:
    """Initialise every linear and convolution layer of `net` in place and return it; a branch is a layer of its own."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            for branch in layer.weight.data.chunk(branches):
                nn.init.xavier_uniform_(branch)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net
