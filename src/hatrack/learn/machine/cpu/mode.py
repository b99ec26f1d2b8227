"""A mode that sees the calls of torch's functions inside the user's forward(), which stays as it is.

Dropout and linear layers are done in ways of our own while it lasts, in this thread only; outside nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from hatrack.learn.machine.cpu import dropout
from hatrack.learn.machine.cpu.heap import keep_freed_memory
from hatrack.learn.machine.cpu.linear import linear

INSTEAD: dict[Callable[..., Any], Callable[..., torch.Tensor]] = {
    F.dropout: dropout.dropout,
    torch.dropout: dropout.of_torch,
    torch.dropout_: dropout.of_torch_,
    F.linear: linear,
}


class FastOnCpu(TorchFunctionMode):
    """Our own way of dropout and of linear layers, while the context lasts."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in INSTEAD:
            return INSTEAD[func](*args, **kwargs)
        if func in dropout.DRAWING and dropout.draws((*args, *kwargs.values())):
            with dropout.Words():  # type: ignore[no-untyped-call]
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def fast(device: torch.device) -> AbstractContextManager[object]:
    """Return what makes forward passes on a device fast; it may be entered again and again.

    Not where answers are compared bit by bit: those are torch's own.
    """
    if device.type != "cpu":
        return nullcontext()
    keep_freed_memory()
    return FastOnCpu()
