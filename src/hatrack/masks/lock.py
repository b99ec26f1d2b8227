"""The lock: how much of an update may reach every parameter entry. One piece of code for hard and soft locks.

    before the step:  g ← (1 − lock)·g; where lock = 1 the gradient is exactly +0, even if it was NaN
    after the step:   entries with lock = 1 get back the bits they had when the task began

The first line is what the papers write; the second makes it true under any optimiser, momentum, weight decay,
clipping or precision. After single steps it is left out where the first suffices as far as can be seen (see `trust`);
at the end of every epoch, and before anything is kept or written, it is done whoever moved the entries (`restore`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim import optimizer as optimizers

from hatrack.errors import HatrackError

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# With a fresh state and no weight decay, these leave an entry whose gradient is always zero exactly where it is.
_MOVE_BY_GRADIENT_ONLY = (SGD, Adam, AdamW, RMSprop)


class _Kept(NamedTuple):
    """Entries locked in full: all bits of `free` are set where an entry may change, `bits` holds the others' bits."""

    name: str
    parameter: Tensor
    free: Tensor
    bits: Tensor

    def by(self, tensor: Tensor | None) -> bool:
        """Whether `tensor` holds the bits."""
        if tensor is None or (tensor.shape, tensor.device) != (self.free.shape, self.free.device):
            return False
        return torch.equal(_bits(tensor.detach()) & ~self.free, self.bits)


class Lock:
    """Protects `parameters` by `amounts` in [0, 1]; a parameter without an amount is free."""

    def __init__(self, parameters: Mapping[str, Tensor], amounts: Mapping[str, Tensor]) -> None:
        self._soft: list[tuple[Tensor, Tensor]] = []  # (parameter, share of an update that passes)
        self._kept: list[_Kept] = []
        self._trusted: Optimizer | None = None
        self.whole: list[Tensor] = []  # parameters that are locked in all their entries: no gradient is asked for
        self._smallest = 0.0  # what may be divided by in every locked parameter's type
        for name, amount in amounts.items():
            if name not in parameters:  # not trained, so there is nothing to lock
                continue
            parameter = parameters[name]
            kept = amount >= 1
            if bool(((amount > 0) & ~kept).any()):
                self._soft.append((parameter, (1 - amount).to(parameter.dtype).contiguous()))
            if bool(kept.any()):
                words = _bits(parameter.detach())
                self._smallest = max(self._smallest, torch.finfo(parameter.dtype).tiny)
                # In single bytes, −1 or 0, where they are extended on the way to the arithmetic: less to read.
                free = kept.to(torch.int8 if kept.is_cuda else words.dtype) - 1
                self._kept.append(_Kept(name, parameter, free, words & ~free))
            if bool(kept.all()):
                self.whole.append(parameter)

    def trust(self, optimizer: Optimizer | None) -> None:
        """Put nothing back after single steps while `optimizer`, just made, moves entries by their gradients alone.

        None: trust nobody, since somebody else may write (`hooked`).
        """
        known = type(optimizer) in _MOVE_BY_GRADIENT_ONLY and optimizer is not None and not optimizer.state
        self._trusted = optimizer if known else None

    @property
    def _restoring(self) -> bool:
        if self._trusted is None or watched(self._trusted):
            return True
        # Adam and RMSprop divide the zero of a locked entry by eps, which must not vanish in the entry's own type.
        groups = self._trusted.param_groups
        return any(g.get("weight_decay", 0) != 0 or g.get("eps", 1) < self._smallest for g in groups)

    def on_gradients(self) -> None:
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
        for _, parameter, free, _ in self._kept:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = _scale_sparse(parameter.grad, (free != 0).to(parameter.dtype))
            elif parameter.grad is not None:
                _bits(parameter.grad).bitwise_and_(free)

    def after_step(self) -> None:
        """Give every fully locked entry its old bits back, unless the step cannot have moved it."""
        if self._restoring:
            self.restore()

    def restore(self) -> None:
        """Give every fully locked entry its old bits back, whoever wrote to it."""
        for _, parameter, free, bits in self._kept:
            _bits(parameter.detach()).bitwise_and_(free).bitwise_or_(bits)

    def refuse_lost(self, parameters: Mapping[str, Tensor]) -> None:
        """Refuse what no restore could reach: parameters, by name, that do not hold the bits they are locked to."""
        for kept in self._kept:
            if not kept.by(parameters.get(kept.name)):
                raise HatrackError(
                    f"{kept.name} has locked entries and was replaced, reshaped or tied to another parameter while a "
                    f"task was learned; write into parameters in place, and load the last learner saved."
                )


def watched(optimizer: Optimizer) -> bool:
    """Whether somebody's own code runs in or around the optimiser's step, and may change parameters or gradients."""
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or "step" in vars(optimizer)
    everywhere = optimizers._global_optimizer_pre_hooks or optimizers._global_optimizer_post_hooks
    return bool(own or everywhere) or not _torchs_own(type(optimizer).step)


def _torchs_own(step: Any) -> bool:
    """Whether a step was written in torch.optim, and so was every function that it wraps: torch wraps its own."""
    while step is not None:
        if not getattr(step, "__globals__", {}).get("__name__", "").startswith("torch.optim."):
            return False
        step = getattr(step, "__wrapped__", None)
    return True


def hooked(networks: Iterable[nn.Module], parameters: Iterable[Tensor]) -> bool:
    """Whether somebody's own code runs in forward or backward, as hooks on modules or parameters, and may write."""
    every = (m for network in networks for m in network.modules())
    return (
        bool(modules._has_any_global_hook())
        or any(m._forward_pre_hooks or m._forward_hooks or m._backward_pre_hooks or m._backward_hooks for m in every)
        or any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters)
    )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_WORDS[tensor.element_size()])


def _scale_sparse(gradient: Tensor, share: Tensor) -> Tensor:
    """Return a sparse gradient (of an embedding) with its values scaled, still sparse."""
    gradient = gradient.coalesce()
    rows = gradient.indices()
    values = gradient.values() * share[tuple(rows)]
    return torch.sparse_coo_tensor(rows, values, gradient.shape, check_invariants=False)
