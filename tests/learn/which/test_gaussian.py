"""Distances to classes, against scikit-learn's shrinkage and numpy's inverses in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf
from torch import Tensor

from hatrack.learn.which import gaussian
from hatrack.learn.which.gaussian import fit


def drawn(samples: int, features: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(seed)
    mixed = random.normal(size=(samples, features)) @ random.normal(size=(features, features))
    labels = np.arange(samples) % classes
    return torch.tensor(mixed + 3 * random.normal(size=(classes, features))[labels]), torch.tensor(labels)


def oracle(x: Tensor, y: Tensor, asked: Tensor) -> tuple[NDArray[np.float64], float]:
    """Return D² of every sample to every class, and log |Σ|."""
    classes = sorted(set(y.tolist()))
    means = np.stack([x[y == c].numpy().mean(0) for c in classes])
    left = x.numpy() - means[[classes.index(label) for label in y.tolist()]]
    covariance = LedoitWolf(assume_centered=True).fit(left).covariance_
    apart = asked.numpy()[:, None] - means
    distances = np.einsum("ncp,pq,ncq->nc", apart, np.linalg.inv(covariance), apart)
    return distances, float(np.linalg.slogdet(covariance)[1])


@pytest.mark.parametrize(("samples", "features", "classes"), [(200, 5, 2), (60, 40, 3), (30, 50, 2), (12, 200, 4)])
def test_distances_are_those_of_scikit_learns_covariance(samples: int, features: int, classes: int) -> None:
    x, y = drawn(samples, features, classes)
    asked = drawn(9, features, classes, seed=1)[0]
    made = fit(x, y)
    distances, determinant = oracle(x, y, asked)
    np.testing.assert_allclose(made.distances(asked), distances, rtol=1e-4)
    assert float(made.log_determinant) == pytest.approx(determinant, rel=1e-5)


def test_classes_that_are_missing_have_no_distance() -> None:
    x, _ = drawn(40, 6, 2)
    y = torch.tensor([1, 4] * 20)
    assert fit(x, y).distances(x).shape == (40, 2)
    np.testing.assert_allclose(fit(x, y).distances(x), oracle(x, y, x)[0], rtol=1e-4)


def test_of_wide_features_the_smaller_directions_count_with_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = drawn(300, 20, 2)
    asked = drawn(7, 20, 2, seed=1)[0]
    monkeypatch.setattr(gaussian, "DIRECTIONS", 6)
    made = fit(x, y)
    means = np.stack([x[y == c].numpy().mean(0) for c in (0, 1)])
    full = LedoitWolf(assume_centered=True).fit(x.numpy() - means[y.numpy()]).covariance_
    values, vectors = np.linalg.eigh(full)
    values[:-6] = values[:-6].mean()
    inverse = vectors @ np.diag(1 / values) @ vectors.T
    apart = asked.numpy()[:, None] - means
    np.testing.assert_allclose(made.distances(asked), np.einsum("ncp,pq,ncq->nc", apart, inverse, apart), rtol=1e-4)
    assert float(made.log_determinant) == pytest.approx(np.log(values).sum(), rel=1e-5)
    assert made.directions.shape == (20, 6)


def test_features_that_never_move_tell_what_moves_apart() -> None:
    made = fit(torch.ones(10, 3), torch.zeros(10, dtype=torch.long))
    assert made.distances(torch.ones(1, 3)).tolist() == [[0.0]]
    far = made.distances(torch.tensor([[1.0, 1.0, 2.0]]))
    assert bool(far.isfinite().all())
    assert float(far) > 1e6
