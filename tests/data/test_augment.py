"""The built-in augmentations, each held against a plain loop over NumPy arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from hatrack.data.augment import BUILT_IN

Pictures = npt.NDArray[np.float64]


def flip(x: Pictures, chosen: npt.NDArray[np.bool_]) -> Pictures:
    out = x.copy()
    for i, _, row, column in np.ndindex(*x.shape):
        if chosen[i]:
            out[i, :, row, column] = x[i, :, row, x.shape[3] - 1 - column]
    return out


def crop(x: Pictures, corners: npt.NDArray[np.int64]) -> Pictures:
    out = np.zeros_like(x)
    for i, _, row, column in np.ndindex(*x.shape):
        r, c = row + corners[i, 0] - 4, column + corners[i, 1] - 4
        if 0 <= r < x.shape[2] and 0 <= c < x.shape[3]:
            out[i, :, row, column] = x[i, :, r, c]
    return out


def colour(x: Pictures, factors: Pictures) -> Pictures:
    def grey(pixel: Pictures) -> float:
        return float(pixel @ [0.299, 0.587, 0.114]) if len(pixel) == 3 else float(pixel.mean())

    out = x.copy()
    for i, picture in enumerate(out):
        brightness, contrast, saturation = factors[:, i]
        picture[:] = np.clip(picture * brightness, 0, 1)
        places = list(np.ndindex(*picture.shape[1:]))
        mean = np.mean([grey(picture[:, r, c]) for r, c in places])
        picture[:] = np.clip(contrast * picture + (1 - contrast) * mean, 0, 1)
        for r, c in places:
            g = grey(picture[:, r, c])
            picture[:, r, c] = np.clip(saturation * picture[:, r, c] + (1 - saturation) * g, 0, 1)
    return out


def cutout(x: Pictures, centres: npt.NDArray[np.int64]) -> Pictures:
    out = x.copy()
    high, wide = x.shape[2] // 2, x.shape[3] // 2
    for i, _, row, column in np.ndindex(*x.shape):
        top, left = centres[i, 0] - high // 2, centres[i, 1] - wide // 2
        if top <= row < top + high and left <= column < left + wide:
            out[i, :, row, column] = 0
    return out


def mixup(x: Pictures, drawn: tuple[npt.NDArray[np.int64], float]) -> Pictures:
    partners, share = drawn
    return np.stack([share * x[i] + (1 - share) * x[partners[i]] for i in range(len(x))])


ORACLES = {"flip": flip, "crop": crop, "colour": colour, "cutout": cutout, "mixup": mixup}


def as_numpy(drawn: Tensor | tuple[Tensor, ...]) -> object:
    return (
        drawn.double().numpy()
        if isinstance(drawn, Tensor) and drawn.is_floating_point()
        else (drawn.numpy() if isinstance(drawn, Tensor) else tuple(part.numpy() for part in drawn))
    )


@pytest.mark.parametrize("shape", [(9, 3, 6, 8), (9, 1, 7, 7), (1, 3, 8, 8)])
@pytest.mark.parametrize("name", BUILT_IN)
def test_it_does_what_a_plain_loop_does(name: str, shape: tuple[int, ...]) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.rand(shape)
        before = x.clone()
        step = BUILT_IN[name]
        drawn = step.draw(x)
        found = step.apply(x, drawn)
        wanted = ORACLES[name](x.double().numpy(), as_numpy(drawn))  # type: ignore[operator]
        np.testing.assert_allclose(found.numpy(), wanted, atol=2e-6)
        assert torch.equal(x, before)
        assert found.dtype == x.dtype


def test_there_is_an_oracle_for_each() -> None:
    assert ORACLES.keys() == BUILT_IN.keys()


def test_soft_targets_are_mixed_as_their_samples_are() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(8, 3, 4, 4), torch.eye(8)
    step = BUILT_IN["mixup"]
    partners, share = step.draw(x)
    mixed = step.apply(y, (partners, share))
    for i in range(8):
        wanted = torch.zeros(8)
        wanted[i] += share
        wanted[partners[i]] += 1 - share
        torch.testing.assert_close(mixed[i], wanted)
    assert sorted(partners.tolist()) == list(range(8))


def test_what_is_drawn_is_even() -> None:
    torch.manual_seed(0)
    x = torch.zeros(20_000, 3, 10, 12)
    assert abs(float(BUILT_IN["flip"].draw(x).float().mean()) - 0.5) < 0.02
    counts = torch.bincount(BUILT_IN["crop"].draw(x).flatten(), minlength=9)
    assert len(counts) == 9
    assert (counts / counts.sum() * 9 - 1).abs().max() < 0.06
    factors = BUILT_IN["colour"].draw(x)
    assert factors.shape == (3, 20_000)
    assert 0.6 <= float(factors.min()) < 0.61
    assert 1.39 < float(factors.max()) <= 1.4
    rows, columns = BUILT_IN["cutout"].draw(x).T
    assert torch.bincount(rows, minlength=10).min() > 1800
    assert torch.bincount(columns, minlength=12).min() > 1500
    shares = torch.stack([BUILT_IN["mixup"].draw(x[:4])[1] for _ in range(2000)])
    assert abs(float(shares.mean()) - 0.5) < 0.03
    assert abs(float(shares.var()) - 1 / 12) < 0.01
