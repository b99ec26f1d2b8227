"""The Fisher diagonal against per-sample gradients by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hatrack.data.feed import Feed, Part
from hatrack.data.task import Task
from hatrack.methods.parts.fisher import fisher_diagonal


@pytest.mark.parametrize("size", [1, 4])
def test_squared_mini_batch_gradients(size: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)).astype(np.float32), rng.integers(2, size=10)
    y[:2] = (0, 1)
    layer = nn.Linear(3, 2)
    given = Task("t", (x, y))
    feed = Feed([Part(0, given.train, given.inputs, given.target)], torch.device("cpu"))
    got = fisher_diagonal(
        lambda b: nn.functional.cross_entropy(layer(b.x), b.y), dict(layer.named_parameters()), feed, size
    )
    w, b = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    expected = np.zeros((2, 3))
    for start in range(0, 10, size):
        rows = slice(start, min(start + size, 10))
        z = x[rows] @ w.T + b
        d = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        d[np.arange(len(d)), y[rows]] -= 1
        g = d.T @ x[rows] / len(d)
        expected += len(d) * g**2 / 10
    np.testing.assert_allclose(got["weight"].numpy(), expected, rtol=1e-4)
