"""`hatrack explain`: the unit map of a network as text."""

from __future__ import annotations

import torch

from hatrack.errors import HatrackError
from hatrack.masks.explain import explain
from hatrack.nets import build


def explain_net(net: str, shape: str) -> str:
    """Return the map of the network `net` (a name, or code) for inputs of `shape`, given as '3,32,32'."""
    try:
        size = tuple(int(part) for part in shape.split(","))
    except ValueError:
        raise HatrackError(f"--shape must be whole numbers with commas between, like 3,32,32; got {shape!r}.") from None
    if not size or min(size) < 1:
        raise HatrackError(f"--shape must be whole numbers of at least 1, got {shape!r}.")
    try:
        return str(explain(build(net, size), torch.zeros(1, *size)))
    except (RuntimeError, MemoryError) as error:
        raise HatrackError(f"no {net} for inputs of {shape!r}: {(str(error).splitlines() or ['memory'])[0]}.") from None
