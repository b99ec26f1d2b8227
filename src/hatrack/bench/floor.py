"""The floor under a training step: the time that its bytes and its operations take at the speed of this device.

    bytes       every parameter is read by forward, backward and update, its gradient written and read, and it is
                written once: 6 · 4 · P; the speed is that of copying a large tensor
    operations  counted by torch in one forward and backward pass; the speed is that of a large matrix product in the
                same precision

The larger of the two, both measured on the spot. Activations and kernel launches are left out: no step is that fast.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch
from torch.utils.flop_counter import FlopCounterMode

from hatrack.bench.sides import BATCH, SHAPE
from hatrack.bench.timing import wait
from hatrack.nets import build
from hatrack.nets.precision import Precision

TRAFFIC = 6


def floor_milliseconds(device: torch.device, precision: str) -> float:
    """Return the floor of the AlexNet-like net's step at BATCH samples."""
    net = build("alexnet", SHAPE).to(device)
    moved = TRAFFIC * 4 * sum(p.numel() for p in net.parameters())
    with FlopCounterMode(display=False) as counter:
        net(torch.zeros(BATCH, *SHAPE, device=device)).sum().backward()
    memory, arithmetic = _bytes_a_second(device), _operations_a_second(device, precision)
    return float(1000 * max(moved / memory, counter.get_total_flops() / arithmetic))


def _bytes_a_second(device: torch.device) -> float:
    size = 2**28 if device.type == "cuda" else 2**26
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / _best(lambda: target.copy_(source), device)


def _operations_a_second(device: torch.device, precision: str) -> float:
    n = 8192 if device.type == "cuda" else 1024
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(n, n, device=device, dtype=dtype)
    with Precision(precision, device).products():
        return 2 * n**3 / _best(lambda: a @ a, device)


def _best(call: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats + 1):
        wait(device)
        start = perf_counter()
        call()
        wait(device)
        times.append(perf_counter() - start)
    return min(times[1:])
