"""The lock: how much of an update may reach every parameter entry. One piece of code for hard and soft locks.

    before the step:  g ← (1 − lock)·g; where lock = 1 the gradient is exactly +0, even if it was NaN
    after the step:   entries with lock = 1 get back the bits they had when the task began

The first line is what the papers write; the second makes it true under any optimiser, momentum, weight decay,
clipping or precision. It is left out only where the first provably suffices (see `trust`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim import optimizer as optimizers

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# With a fresh state and no weight decay, these leave an entry whose gradient is always zero exactly where it is.
_MOVE_BY_GRADIENT_ONLY = (SGD, Adam, AdamW, RMSprop)


class _Kept(NamedTuple):
    """Entries locked in full: all bits of `free` are set where an entry may change, `bits` holds the others' bits."""

    parameter: Tensor
    free: Tensor
    bits: Tensor


class Lock:
    """Protects `parameters` by `amounts` in [0, 1]; a parameter without an amount is free."""

    def __init__(self, parameters: Mapping[str, Tensor], amounts: Mapping[str, Tensor]) -> None:
        self._soft: list[tuple[Tensor, Tensor]] = []  # (parameter, share of an update that passes)
        self._kept: list[_Kept] = []
        self._trusted: Optimizer | None = None
        for name, amount in amounts.items():
            if name not in parameters:  # not trained, so there is nothing to lock
                continue
            parameter = parameters[name]
            kept = amount >= 1
            if bool(((amount > 0) & ~kept).any()):
                self._soft.append((parameter, (1 - amount).to(parameter.dtype).contiguous()))
            if bool(kept.any()):
                words = _bits(parameter.detach())
                # In single bytes, −1 or 0, where they are extended on the way to the arithmetic: less to read.
                free = kept.to(torch.int8 if kept.is_cuda else words.dtype) - 1
                self._kept.append(_Kept(parameter, free, words & ~free))

    def trust(self, optimizer: Optimizer) -> None:
        """Leave out the restore as long as `optimizer`, just made, moves entries by their gradients alone."""
        known = type(optimizer) in _MOVE_BY_GRADIENT_ONLY and not optimizer.state
        self._trusted = optimizer if known else None

    @property
    def _restoring(self) -> bool:
        if self._trusted is None or watched(self._trusted):
            return True
        # Without eps, Adam and RMSprop divide the zero of a locked entry by zero.
        return any(g.get("weight_decay", 0) != 0 or g.get("eps", 1) <= 0 for g in self._trusted.param_groups)

    def on_gradients(self) -> None:
        """Scale the gradients by what may pass."""
        dense: list[Any] = []
        passing: list[Tensor] = []
        for parameter, share in self._soft:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = _scale_sparse(parameter.grad, share)
            elif parameter.grad is not None:
                dense.append(parameter.grad)
                passing.append(share)
        if dense:
            torch._foreach_mul_(dense, passing)
        for parameter, free, _ in self._kept:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = _scale_sparse(parameter.grad, (free != 0).to(parameter.dtype))
            elif parameter.grad is not None:
                _bits(parameter.grad).bitwise_and_(free)

    def after_step(self) -> None:
        """Give every fully locked entry its old bits back."""
        if not self._restoring:
            return
        for parameter, free, bits in self._kept:
            _bits(parameter.detach()).bitwise_and_(free).bitwise_or_(bits)


def watched(optimizer: Optimizer) -> bool:
    """Whether somebody's own code runs around the optimiser's step, and may change parameters or gradients."""
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or "step" in vars(optimizer)
    everywhere = optimizers._global_optimizer_pre_hooks or optimizers._global_optimizer_post_hooks
    return bool(own or everywhere)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_WORDS[tensor.element_size()])


def _scale_sparse(gradient: Tensor, share: Tensor) -> Tensor:
    """Return a sparse gradient (of an embedding) with its values scaled, still sparse."""
    gradient = gradient.coalesce()
    rows = gradient.indices()
    values = gradient.values() * share[tuple(rows)]
    return torch.sparse_coo_tensor(rows, values, gradient.shape, check_invariants=False)
