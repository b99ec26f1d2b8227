"""Dropout on a CPU, where drawing its masks takes half of a step: they are cut from random words.

    y = x · m / q,  m ~ Bernoulli(q), q = k / 2^b: the multiple of 2^−8 or 2^−16 that is nearest to 1 − p

64-bit random words are compared as bytes with k: one comparison a value in place of a call of a Bernoulli sampler.
Where bytes come no closer than CLOSE to 1 − p, 16 bits a value are compared. Dividing by the true q keeps the mean.

What draws deeper inside (attention, recurrent layers, whole channels) gets Bernoulli numbers the same way, one level
below. Every mask takes its seed from torch's own generator, so that a resumed run gets the same masks again. A block
that is computed anew in the backward pass (torch.utils.checkpoint), where no mode reaches, draws as torch does both
times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from hatrack.learn.machine.cpu.tensors import ordinary

CLOSE = 1e-3
DRAWING = {
    *(F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.alpha_dropout, torch.alpha_dropout_, torch.feature_dropout, torch.feature_dropout_),
    *(torch.feature_alpha_dropout, torch.feature_alpha_dropout_),
    *(F.scaled_dot_product_attention, F.multi_head_attention_forward),
    *(torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu),
}


class Words(TorchDispatchMode):
    """Bernoulli numbers by random words, below autograd; whoever draws them scales by 1 − p."""

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.bernoulli_.float and ordinary(args[0]):
            numbers, keep = args if len(args) == 2 else (args[0], 0.5)  # what is the default is left out
            return numbers.copy_(_kept(numbers, keep, coarse=False)[0])
        return func(*args, **(kwargs or {}))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Do what F.dropout does."""
    if not (training and 0 < p < 1 and ordinary(input)) or _comes_again():
        return F.dropout(input, p, training, inplace)
    # 1/q is rounded as the input is, and a q that is far from 1 − p need not be as near to what it is rounded to.
    kept, share = _kept(input, 1 - p, coarse=input.dtype == torch.float32)
    factors = kept.mul_(1 / share)
    return input.mul_(factors) if inplace else input * factors


def draws(args: Iterable[object]) -> bool:
    """Whether a call of a function in DRAWING draws: one of its numbers, the rate among them, is above 0."""
    return not _comes_again() and any(isinstance(value, float) and value > 0 for value in args)


def _comes_again() -> bool:
    """Whether what is computed now may be computed anew: without gradients, or with hooks on what is kept for them."""
    return not torch.is_grad_enabled() or torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def of_torch(input: Tensor, p: float, train: bool) -> Tensor:
    """Do what torch.dropout does."""
    return dropout(input, p, train)


def of_torch_(input: Tensor, p: float, train: bool) -> Tensor:
    """Do what torch.dropout_ does."""
    return dropout(input, p, train, inplace=True)


def _kept(like: Tensor, keep: float, coarse: bool) -> tuple[Tensor, float]:
    """Return ones with probability q and zeros else, laid out as `like` is, and q."""
    word: type[np.uint8 | np.uint16] = np.uint8
    if not coarse or abs(_share(keep, 8) - keep) > CLOSE:
        word = np.uint16
    count, bits = like.numel(), 8 * np.dtype(word).itemsize
    share = _share(keep, bits)
    seed = int(torch.randint(2**62, ()))
    words = np.random.SFC64(seed).random_raw(-(-count * bits // 64)).view(word)[:count]
    kept = torch.empty_like(like, requires_grad=False)  # its entries fill one stretch of memory
    kept.as_strided((count,), (1,)).copy_(torch.from_numpy((words < round(share * 2**bits)).view(np.uint8)))
    return kept, share


def _share(keep: float, bits: int) -> float:
    """Return the nearest share that words of so many bits can keep, neither none nor all."""
    return float(min(max(round(keep * 2**bits), 1), 2**bits - 1) / 2**bits)
