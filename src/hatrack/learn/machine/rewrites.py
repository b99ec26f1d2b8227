"""Products that libraries do slowly on tensor cores, written so that a compiler does them fast.

first convolution   of a picture with few channels, which nothing has to differentiate: patches · weights as one matrix
                    product, forward and for the weights' gradient; cuDNN would pad or transpose the pictures
head                x·Wᵀ with few columns and a long sum: two tiles of a matrix kernel leave the device idle, a plain
                    sum uses all of it

Handed to the tracer, which asks for every such operation; NotImplemented leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FEW_CHANNELS = 4  # a tensor core's tile is at least 8 deep
FEW_OUTPUTS, LONG_SUM = 4096, 512

aten = torch.ops.aten


def _patches(x: Tensor, kernel: tuple[int, int], stride: list[int]) -> Tensor:
    """Return a row for every place of the kernel on every picture: (places, channels · height · width)."""
    parts = x.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
    return parts.permute(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * kernel[0] * kernel[1])


def _is_first(x: Tensor, weight: Tensor, padding: list[int], dilation: list[int], groups: int) -> bool:
    ordinary = groups == 1 and not any(padding) and all(d == 1 for d in dilation)
    return ordinary and x.dim() == 4 and weight.shape[1] <= FEW_CHANNELS


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    """y = patches(x)·Wᵀ + b, channels last."""
    if transposed or not _is_first(x, weight, padding, dilation, groups):
        return NotImplemented
    out, _, height, width = weight.shape
    rows = (x.shape[2] - height) // stride[0] + 1
    y = _patches(x, (height, width), stride) @ weight.reshape(out, -1).t()
    y = y if bias is None else y + bias
    return y.view(x.shape[0], rows, -1, out).permute(0, 3, 1, 2)


def convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    """dW = dyᵀ·patches(x), db = Σ dy; nothing for x."""
    if wanted[0] or transposed or not _is_first(x, weight, padding, dilation, groups):
        return NotImplemented
    out, _, height, width = weight.shape
    flat = gradient.permute(0, 2, 3, 1).reshape(-1, out)
    for_weight = (flat.t() @ _patches(x, (height, width), stride)).view(weight.shape) if wanted[1] else None
    return None, for_weight, flat.sum(0) if wanted[2] else None


def addmm(bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """y_ij = b_j + Σ_k x_ik·w_kj, where there are few y and many k."""
    if beta != 1 or alpha != 1 or x.shape[0] * weight.shape[1] > FEW_OUTPUTS or x.shape[1] < LONG_SUM:
        return NotImplemented
    return (x[:, None, :] * weight.t()).sum(-1) + bias


REWRITES: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.addmm.default: addmm,
}
