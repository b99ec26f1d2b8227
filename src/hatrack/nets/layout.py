"""How pictures lie in memory while a network is trained: with channels last, convolutions on a CPU take less time.

The layout of the input is enough: every layer hands it on. The network's own tensors keep theirs, and answers are
computed from inputs as they come, so that they do not depend on this.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def best_layout(net: nn.Module, example: Tensor, features: Tensor) -> torch.memory_format:
    """Return channels last where `net` has 2-D convolutions and gives the same features of such an input."""
    if example.dim() != 4 or not any(isinstance(module, nn.Conv2d) for module in net.modules()):
        return torch.contiguous_format
    try:
        found = net(laid_out(example, torch.channels_last))
    except RuntimeError:  # a view that needs the channels to come first
        return torch.contiguous_format
    same = isinstance(found, Tensor) and found.shape == features.shape and torch.allclose(found, features, 1e-3, 1e-4)
    return torch.channels_last if same else torch.contiguous_format


def laid_out(x: Tensor, layout: torch.memory_format) -> Tensor:
    """Return x with its entries in that order, also where it has one channel and both orders are one."""
    if layout == torch.contiguous_format:
        return x
    return torch.empty_like(x, memory_format=layout).copy_(x)
