"""Timing several sides in one interleaved run: on a shared machine only ratios from one round compare."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from hatrack.show.words import count

log = logging.getLogger(__name__)
QUIET = 10.0  # seconds without a word, at least: compiling for many sides takes minutes


@dataclass(frozen=True)
class Timing:
    """Milliseconds a step of one side (median over rounds), and its ratio to the first side, round by round."""

    side: str
    milliseconds: float
    ratio: float


def interleave(
    sides: Mapping[str, tuple[Callable[[], None], int]], rounds: int, device: torch.device, warm: int = 1
) -> list[Timing]:
    """Time every side once a round; each is a function and the number of steps it does.

    The first `warm` rounds are not counted. Ratios refer to the first side.
    """
    times: dict[str, list[float]] = {side: [] for side in sides}
    told = perf_counter()
    for turn in range(warm + rounds):
        if perf_counter() - told > QUIET:
            log.info("round %d of %d", turn + 1, warm + rounds)
            told = perf_counter()
        # Every other round backwards: what comes later in a round may find the machine warmer, or busier.
        for side, (call, steps) in list(sides.items())[:: 1 if turn % 2 == 0 else -1]:
            wait(device)
            start = perf_counter()
            call()
            wait(device)
            if turn >= warm:
                times[side].append((perf_counter() - start) / steps * 1000)
    first = next(iter(times.values()))
    return [
        Timing(side, median(taken), median(t / f for t, f in zip(taken, first, strict=True)))
        for side, taken in times.items()
    ]


def wait(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def repeated(step: Callable[[], None], times: int) -> Callable[[], None]:
    """Return a function that does `step` so many times."""

    def call() -> None:
        for _ in range(times):
            step()

    return call


def machine(device: torch.device) -> str:
    """Name what a figure was measured on."""
    if device.type == "cuda":
        return f"torch {torch.__version__}, {torch.cuda.get_device_name(device)}"
    kind, threads = torch.backends.cpu.get_cpu_capability(), count(torch.get_num_threads(), "thread")
    return f"torch {torch.__version__}, CPU ({kind}), {threads}"
