"""AUROC: how often what is strange is found stranger than what is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def auroc(known: NDArray[np.floating], strange: NDArray[np.floating]) -> float:
    """Return P(strange > known) + P(strange = known)/2 over all pairs, by ranks (Mann and Whitney)."""
    _, place, counts = np.unique(np.concatenate([known, strange]), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # ties share the mean of their ranks
    total = float(ranks[place.ravel()[len(known) :]].sum())
    return (total - len(strange) * (len(strange) + 1) / 2) / (len(known) * len(strange))
