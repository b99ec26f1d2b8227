"""SPG's importance against numpy: normalisation with its corner cases, gradients of all heads, the maximum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import arrays, as_arrays, backward, close, feed, gradient, model, samples

from hatrack.methods.parts.importance import gradient_importance, normalised, summed_gradients


def standardised(g: np.ndarray) -> np.ndarray:
    """|tanh((g − mean)/std)|, as the paper writes it."""
    return np.abs(np.tanh((g - g.mean()) / g.std(ddof=1))) if g.any() else g


def own_head(p: dict, x: np.ndarray, y: np.ndarray) -> dict:
    return {name: len(y) * g for name, g in gradient(p, x, y).items() if not name.startswith("head.")}


def other_head(p: dict, x: np.ndarray) -> dict:
    ones = np.ones((len(x), len(p["head.bias"])))  # the gradient of a sum of logits
    return {name: g for name, g in backward(p, x, ones).items() if not name.startswith("head.")}


def test_normalisation_is_per_tensor_and_unbiased() -> None:
    rng = np.random.default_rng(0)
    values = {"a": 1e-6 * rng.normal(size=(3, 4)), "b": 5 + 100 * rng.normal(size=7), "pair": np.array([1.0, 2.0])}
    close(
        as_arrays(normalised({name: torch.from_numpy(v) for name, v in values.items()})),
        {name: standardised(v) for name, v in values.items()},
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e7, 1e-30])
@pytest.mark.parametrize("size", [1, 10])
def test_a_tensor_of_equal_values_has_no_importance(value: float, size: int, dtype: torch.dtype) -> None:
    gamma = normalised({"x": torch.full((size,), value, dtype=dtype)})["x"]
    assert torch.equal(gamma, torch.zeros(size, dtype=dtype))


def test_summed_gradients_are_those_of_the_whole_set_whatever_the_batch_size() -> None:
    m, (x, y) = model(), samples(3, n=150)
    net = dict(m.net.named_parameters())

    def loss(batch):
        return torch.nn.functional.cross_entropy(m.logits(batch.x, 0), batch.y, reduction="sum")

    for size in (7, 64, 1000):
        close(as_arrays(summed_gradients(loss, net, feed(x, y), size)), own_head(arrays(m, 0), x, y), rtol=1e-8)


def test_a_parameter_that_the_loss_does_not_reach_has_no_importance() -> None:
    m, (x, y) = model(), samples(3)
    unused = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    gamma = gradient_importance(m, 0, {**m.parameters(), "unused": unused}, feed(x, y))
    assert torch.equal(gamma["unused"], torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize("chi", [True, False])
def test_importance_is_the_largest_over_all_heads_with_chi_and_the_own_one_without(chi: bool) -> None:
    m, (x, y) = model(heads=(3, 2, 4)), samples(5, n=100, classes=4)
    expected = {name: standardised(g) for name, g in own_head(arrays(m, 2), x, y).items()}
    own = dict(expected)
    for head in range(2 if chi else 0):
        for name, g in other_head(arrays(m, head), x).items():
            expected[name] = np.maximum(expected[name], standardised(g))
    close(as_arrays(gradient_importance(m, 2, m.parameters(), feed(x, y, 2), chi)), expected, rtol=1e-8)
    assert any((expected[name] > own[name]).any() for name in own) == chi
    assert all(p.grad is None for p in m.parameters().values())  # nothing is left behind for the optimiser
