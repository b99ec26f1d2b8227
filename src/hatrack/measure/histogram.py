"""How values are spread over the decades: what a method finds significant differs by many orders of magnitude."""

from __future__ import annotations

from typing import Final, TypedDict

import torch
from torch import Tensor

STEP: Final = 0.25  # of a decade


class LogHistogram(TypedDict):
    """`counts[i]` values v have start + i·step ≤ log10 v < start + (i + 1)·step; `zeros` have no logarithm."""

    start: float
    step: float
    counts: list[int]
    zeros: int


def log_histogram(values: Tensor) -> LogHistogram:
    """Count finite values that are not negative by their logarithm."""
    flat = values.flatten().double().cpu()
    places = torch.floor(flat[(flat > 0) & flat.isfinite()].log10() / STEP).long()
    first = int(places.min()) if len(places) else 0
    counts = torch.bincount(places - first).tolist()
    return {"start": first * STEP, "step": STEP, "counts": counts, "zeros": int((flat == 0).sum())}
