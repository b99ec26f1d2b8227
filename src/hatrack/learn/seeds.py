"""Randomness without state: every stream is a function of the seed and of what it is for.

So a run that is resumed draws what it would have drawn, and nothing about random numbers needs to be saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

PURPOSES = ("head", "method", "shuffle", "noise", "split", "net", "memory", "probe", "release", "grow")


def stream(seed: int, purpose: str, *where: int) -> int:
    """Return the seed of the stream for a purpose at a place (task, epoch)."""
    words = np.random.SeedSequence([seed, PURPOSES.index(purpose), *where]).generate_state(2, np.uint32)
    return int(words[0]) << 31 | int(words[1]) >> 1


def generator(seed: int, purpose: str, *where: int) -> torch.Generator:
    """Return a CPU generator for that stream."""
    return torch.Generator().manual_seed(stream(seed, purpose, *where))


def everywhere(seed: int, purpose: str, *where: int) -> np.random.RandomState:
    """Return a stream that is the same under every version of NumPy and torch: NumPy has frozen this one for good."""
    words = np.random.SeedSequence([seed, PURPOSES.index(purpose), *where]).generate_state(8, np.uint32)
    return np.random.RandomState(words)


@contextmanager
def noise(seed: int, purpose: str, *where: int, device: torch.device) -> Iterator[None]:
    """Draw from that stream inside the context (dropout), and leave the caller's generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream(seed, purpose, *where))
        yield
