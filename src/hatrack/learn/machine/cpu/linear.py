"""Linear layers on a CPU whose matrix products torch leaves to a library that is slow there.

Products of float32 go to MKL, which keeps its fastest instructions for processors of its own maker; oneDNN, which torch
carries as well, does not. On such processors all three products of a layer are oneDNN's, in float32 as before:

    y = x·Wᵀ + b,  ∂x = ∂y·W,  ∂W = ∂yᵀ·x
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hatrack.learn.machine.cpu.tensors import ordinary
from hatrack.learn.processor import processor

WORTH = 2**20  # multiplications from which a call of our own costs less than it saves


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Do what F.linear does."""
    parts = [input, weight] if bias is None else [input, weight, bias]
    if (
        not _pays()
        or input.dim() < 2
        or weight.dim() != 2
        or input.shape[-1] != weight.shape[1]
        or input.numel() * len(weight) < WORTH
        or any(part.dtype != torch.float32 or not ordinary(part) for part in parts)
        or torch.is_autocast_enabled("cpu")
    ):
        return F.linear(input, weight, bias)
    flat = input.flatten(0, -2)
    product: Tensor = _Linear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
    return product.view(*input.shape[:-1], len(weight))


@cache
def _pays() -> bool:
    """Whether this is one of those processors: measured on AMD's with AVX-512, 2.3 times as fast."""
    return "AVX512" in processor() and "AuthenticAMD" in processor() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        again = torch.is_grad_enabled()  # somebody will differentiate this, too
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            (gradient @ weight if again else _product(gradient, weight.t())) if for_x else None,
            (gradient.t() @ x if again else _product(gradient.t(), x.t())) if for_weight else None,
            gradient.sum(0) if for_bias else None,
        )
