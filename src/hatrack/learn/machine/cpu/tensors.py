"""Which tensors our own functions take; all others are left to torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def ordinary(x: Tensor) -> bool:
    """Whether x is a plain tensor of a CPU, and nobody is tracing or compiling what is done to it."""
    return (
        type(x) in (Tensor, nn.Parameter)
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and x.is_floating_point()
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and not torch.compiler.is_compiling()
    )
