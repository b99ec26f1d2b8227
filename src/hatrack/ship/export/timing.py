"""What networks weigh, multiply and take: parameters, bytes, multiply-adds, milliseconds a sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch
from safetensors.torch import save
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hatrack.modes import one_thread
from hatrack.tree import at

TURNS = {1: 40, 64: 8}
ROW = 5  # calls of one function in a turn: who uses a network calls it again and again, with its weights at hand
FEWEST, SECONDS = 3, 4.0  # turns at least, and after how long no further ones are made


def size(*modules: nn.Module) -> tuple[int, int]:
    """Return how many parameters modules have, and the bytes of a file with all their tensors."""
    stored = ((f"{i}.{name}", t) for i, m in enumerate(modules) for name, t in m.state_dict().items())
    held = {name: t.clone(memory_format=torch.contiguous_format) for name, t in stored}
    return sum(p.numel() for m in modules for p in m.parameters()), len(save(held))


@torch.no_grad()
def multiply_adds(ask: Callable[[Any], Any], x: Any) -> int:
    """Return the multiply-adds of one sample, as torch counts them: of products and convolutions alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of Intel's GPUs when its switches are touched
        counted = FlopCounterMode(display=False)
        for hook in ("_fw_pre_hook", "_fw_post_hook"):  # by module: of no use here, and fails on views of parameters
            setattr(counted.mod_tracker, hook, lambda *_: None)
        with torch.backends.mkldnn.flags(enabled=False), counted:
            ask(at(x, slice(1)))
    return int(counted.get_total_flops()) // 2


@torch.no_grad()
def times(
    asked: Sequence[Callable[[Any], Any]],
    x: Any,
    batch: int,
    taken_as: Callable[[list[float]], float] = median,
) -> list[float]:
    """Return the milliseconds a sample of each function, called in turns by one thread: the median of all calls."""
    taken: list[list[float]] = [[] for _ in asked]
    some, started = at(x, slice(batch)), perf_counter()
    with one_thread():
        for turn in range(1 + TURNS[batch]):  # the first one is not counted
            for ask, kept in zip(asked, taken, strict=True):
                for _ in range(ROW):
                    began = perf_counter()
                    ask(some)
                    if turn:
                        kept.append(1e3 * (perf_counter() - began) / batch)
            if turn >= FEWEST and perf_counter() - started > SECONDS:
                break
    return [taken_as(kept) for kept in taken]
