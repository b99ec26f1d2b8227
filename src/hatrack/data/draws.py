"""Random numbers for what is not ours: Datasets, samplers and augmentations draw from torch, NumPy or Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Let all three begin at `seed` inside the context, on the host, and go on afterwards as if nothing had been drawn.

    So what is drawn depends on the seed alone: not on the process that draws, nor on what was drawn before.
    """
    held = torch.get_rng_state(), np.random.get_state(), random.getstate()
    begin_at(seed)
    try:
        yield
    finally:
        torch.set_rng_state(held[0])
        np.random.set_state(held[1])
        random.setstate(held[2])


def begin_at(seed: int) -> None:
    """Let all three begin at `seed` for good; a device's own numbers go on."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def new_seed(generator: torch.Generator | None = None) -> int:
    """Draw a seed."""
    return int(torch.randint(2**62, (), generator=generator))
