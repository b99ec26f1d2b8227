"""What makes steps and tests fast on a CPU.

A mode sees the calls of torch's functions inside the user's forward(), which stays as it is: dropout and linear layers
are done in ways of our own while it lasts, in this thread only; outside nothing changes.

Freed memory stays with the process. A step frees tensors of tens of megabytes, and the next one asks for as many;
where they lie at the end of the heap, glibc hands them to the system in between, which then clears every page anew: up
to half as much again as a step takes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from hatrack.learn.machine.cpu import dropout
from hatrack.learn.machine.cpu.linear import linear

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
KEPT = 2**29  # bytes at the end of the heap that are not handed back
LARGEST = 2**25  # bytes of a block that lies in the heap: more is not allowed

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


@cache
def keep_freed_memory() -> None:
    """Let glibc keep what is freed, once a process; nothing elsewhere, or where the user has settings of malloc's."""
    theirs = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if sys.platform != "linux" or theirs:
        return
    with suppress(OSError, AttributeError):  # a C library without these settings
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM, KEPT)
        mallopt(MMAP, LARGEST)


def give_back() -> None:
    """Hand freed memory to the system now, where the C library can."""
    with suppress(OSError, AttributeError, TypeError):  # TypeError: Windows has no library of no name
        ctypes.CDLL(None).malloc_trim(0)
