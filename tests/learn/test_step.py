"""The step: clipping against numpy, and that a step asks the device for nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hatrack.learn.step import Clip, clip, clip_traced, plain


@pytest.mark.parametrize("clip", [clip, clip_traced])
@pytest.mark.parametrize("limit", [0.5, 1e4])
def test_clip_scales_the_common_norm(clip: Clip, limit: float) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, 4)), rng.normal(size=5)]
    norm = np.sqrt(sum((a**2).sum() for a in arrays))
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    clip(tensors, limit)
    scale = min(1.0, limit / norm)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(tensor.numpy(), array * scale, rtol=1e-5)


@pytest.mark.parametrize("clip", [clip, clip_traced])
def test_a_norm_that_is_not_finite_scales_nothing(clip: Clip) -> None:
    gradient = torch.tensor([float("nan"), 0.0, 3.0])
    clip([gradient], 1.0)
    assert torch.equal(gradient[1:], torch.tensor([0.0, 3.0]))


def test_plain_sgd_is_told_from_all_else() -> None:
    p = torch.nn.Parameter(torch.zeros(2))
    assert plain(torch.optim.SGD([p], lr=0.1, fused=True))
    for options in ({"momentum": 0.9}, {"weight_decay": 0.1}, {"maximize": True}):
        assert not plain(torch.optim.SGD([p], lr=0.1, **options))  # type: ignore[arg-type]
    assert not plain(torch.optim.Adam([p]))
    two = [{"params": [p], "lr": 0.1}, {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.2}]
    assert not plain(torch.optim.SGD(two))
    watched = torch.optim.SGD([p], lr=0.1)
    watched.register_step_post_hook(lambda *_: None)
    assert not plain(watched)
