"""The floor under a training step: the time that its bytes and its operations take at the speed of this device.

    bytes       every parameter is read by forward, backward and update, its gradient written and read, and it is
                written once: 6 · 4 · P; the speed is that of copying a tensor larger than the caches
    operations  counted by torch in one forward and backward pass, convolutions too; the speed is that of a large
                matrix product in the same precision, on as many threads as torch is set to

The larger of the two, both measured on the spot. Activations and kernel launches are left out: no step is that fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hatrack.nets import build
from hatrack.nets.precision import Precision

from .sides import BATCH, SHAPE
from .timing import wait

TRAFFIC = 6
COPIED = 2**28  # bytes
REPEATS = 20  # the fastest counts: on a shared machine many are slowed down


@dataclass(frozen=True)
class Work:
    """What a step has to do at least."""

    operations: float
    bytes: float


@dataclass(frozen=True)
class Floor:
    """A step's work, and how many operations and bytes the device does a second."""

    work: Work
    products: float
    memory: float

    @property
    def milliseconds(self) -> float:
        """The time that the slower of the two takes."""
        return 1000 * max(self.work.operations / self.products, self.work.bytes / self.memory)


def floor_milliseconds(device: torch.device, precision: str) -> float:
    """Return the floor of the AlexNet-like net's step at BATCH samples."""
    work = work_of(build("alexnet", SHAPE), SHAPE, device)
    return Floor(work, operations_a_second(device, precision), bytes_a_second(device)).milliseconds


def work_of(net: nn.Module, shape: Sequence[int], device: torch.device) -> Work:
    """Count what a step of `net` does at BATCH samples."""
    net.to(device)
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(BATCH, *shape, device=device)).sum().backward()
    return Work(counter.get_total_flops(), TRAFFIC * 4 * sum(p.numel() for p in net.parameters()))


def bytes_a_second(device: torch.device) -> float:
    """Measure how fast the device reads and writes."""
    source = torch.ones(COPIED // 4, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED / _best(lambda: target.copy_(source), device)


def operations_a_second(device: torch.device, precision: str) -> float:
    """Measure how fast the device multiplies."""
    n = 8192 if device.type == "cuda" else 2048
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(n, n, device=device, dtype=dtype)
    with Precision(precision, device).products():
        return 2 * n**3 / _best(lambda: a @ a, device)


def _best(call: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(REPEATS + 1):
        wait(device)
        start = perf_counter()
        call()
        wait(device)
        times.append(perf_counter() - start)
    return min(times[1:])
