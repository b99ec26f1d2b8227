"""How much of the network is taken by the tasks so far, and what to say when little is left.

What the user froze beforehand (requires_grad off) counts for nothing: no task takes it, and none could.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from torch import Tensor

from hatrack.errors import CapacityWarning
from hatrack.measure.forecast import LITTLE
from hatrack.measure.shares import USED, Share, blocked, share
from hatrack.methods.base import Method


def taken_weights(method: Method) -> Share | None:
    """Return the share of weights (parameters of two axes or more) taken so far; None where tasks share no weights."""
    occupied = method.occupied()
    if not occupied:
        return None
    return share({name: amount > USED for name, amount in _learnable(method, occupied).items() if amount.ndim > 1})


def blocked_parameters(method: Method) -> Share | None:
    """Return the share of parameters that no update reaches any more; None for methods without masks."""
    occupied = method.occupied()
    return None if not occupied else blocked({n: 1 - amount for n, amount in _learnable(method, occupied).items()})


def total_capacity(method: Method) -> float | None:
    """Return the share in all."""
    taken = taken_weights(method)
    return None if taken is None else taken["total"]


def used_weights(method: Method, task: int) -> dict[str, Tensor] | None:
    """Return which weights a finished task uses; None for methods without masks."""
    use = method.use(task)
    return None if use is None else {n: a > USED for n, a in _learnable(method, use).items() if a.ndim > 1}


def _learnable(method: Method, entries: Mapping[str, Tensor]) -> dict[str, Tensor]:
    frozen = {name for name, p in method.model.net.named_parameters() if not p.requires_grad}
    return {name: amount for name, amount in entries.items() if name not in frozen}


def check_free(method: Method, task: str) -> None:
    """Say, before a task is trained, when the network is (nearly) full, layer by layer and what follows from it."""
    taken = taken_weights(method)
    if taken is None or not method.masks_grow:
        return
    free = {layer: 1 - t for layer, t in taken["layers"].items()}
    scarce = {layer: left for layer, left in free.items() if left < LITTLE}
    if not scarce:
        return
    listed = ", ".join(f"{layer} {left:.1%}" for layer, left in scarce.items())
    warnings.warn(
        f"before {task!r}: little of the network is free ({1 - taken['total']:.1%} in all; {listed}). "
        f"{method.name} goes on by reusing what is locked and the weights still free between; a smaller task mask "
        f"(larger c) or a wider network leaves more room.",
        CapacityWarning,
        stacklevel=6,
    )
