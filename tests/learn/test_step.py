"""The step: clipping against numpy, and that a step asks the device for nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hatrack.learn.step import clip


@pytest.mark.parametrize("limit", [0.5, 1e4])
def test_clip_scales_the_common_norm(limit: float) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, 4)), rng.normal(size=5)]
    norm = np.sqrt(sum((a**2).sum() for a in arrays))
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    clip(tensors, limit)
    scale = min(1.0, limit / norm)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(tensor.numpy(), array * scale, rtol=1e-5)
