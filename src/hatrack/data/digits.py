"""The 8×8 handwritten digits that scikit-learn ships: real data that needs no download (1,797 pictures)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from hatrack.data.task import Inputs

INPUTS = Inputs(mean=(0.3053,), std=(0.3760,))


@cache
def digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return pictures (n, 1, 8, 8) as uint8 scaled to 0–255, and their labels."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pictures = np.round(raw.images * (255 / 16)).astype(np.uint8)[:, None]
    return pictures, raw.target.astype(np.int64)
