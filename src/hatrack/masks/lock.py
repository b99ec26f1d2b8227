"""The lock: how much of an update may reach every parameter entry. One piece of code for hard and soft locks.

    before the step:  g ← (1 − lock)·g
    after the step:   entries with lock = 1 get back the bits they had when the task began

The first line is what the papers write; the second makes it true under any optimiser, momentum, weight decay,
clipping or precision, and even when a gradient is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Lock:
    """Protects `parameters` by `amounts` in [0, 1]; a parameter without an amount is free."""

    def __init__(self, parameters: Mapping[str, Tensor], amounts: Mapping[str, Tensor]) -> None:
        self._guarded: list[Tensor] = []
        self._pass: list[Tensor] = []
        self._words: list[tuple[Tensor, Tensor, Tensor]] = []  # (bits of the parameter, free bits, kept bits)
        for name, amount in amounts.items():
            parameter = parameters[name].detach()
            if not bool((amount > 0).any()):
                continue
            self._guarded.append(parameters[name])
            self._pass.append((1 - amount).to(parameter.dtype).contiguous())
            kept = amount >= 1
            if bool(kept.any()):
                bits = parameter.view(_WORDS[parameter.element_size()])
                free = torch.where(kept, 0, -1 if bits.dtype != torch.uint8 else 255).to(bits.dtype)
                self._words.append((bits, free, bits & ~free))

    def on_gradients(self) -> None:
        """Scale the gradients by what may pass."""
        both = [(p.grad, m) for p, m in zip(self._guarded, self._pass, strict=True) if p.grad is not None]
        if both:
            gradients: Any = [gradient for gradient, _ in both]
            torch._foreach_mul_(gradients, [passing for _, passing in both])

    def after_step(self) -> None:
        """Give every fully locked entry its old bits back."""
        for bits, free, kept in self._words:
            bits.bitwise_and_(free).bitwise_or_(kept)
