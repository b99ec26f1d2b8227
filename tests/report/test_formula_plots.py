"""The gradient of an embedding against autograd and the rule that training applies."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from hatrack.errors import HatrackError
from hatrack.masks.gates import COSH_RANGE, EMBEDDING_RANGE, anneal, compensate, gate
from hatrack.report import formula_plots
from hatrack.report.formula_plots import embedding_gradient, mean_gradients


def test_the_gradients_are_those_of_training() -> None:
    s_max, batches = 20.0, 7
    e = torch.linspace(-6, 0, 13, dtype=torch.float64)  # above 0, autograd takes 1 − σ, which is soon rounded to 0
    annealed, compensated = torch.zeros_like(e), torch.zeros_like(e)
    for batch in range(batches):
        s = anneal(torch.tensor(batch / (batches - 1), dtype=torch.float64), s_max)
        embedding = e.clone().requires_grad_()
        gate(embedding, s).sum().backward()
        assert embedding.grad is not None
        annealed += embedding.grad / batches
        compensate(embedding.grad, e, s, s_max)
        compensated += embedding.grad / batches
    found = mean_gradients(e.numpy(), s_max, batches)
    for name, values in mean_gradients(-e.numpy(), s_max, batches).items():
        np.testing.assert_allclose(values, found[name], rtol=1e-12)
    np.testing.assert_allclose(found["annealed"], annealed, rtol=1e-9)
    np.testing.assert_allclose(found["annealed and compensated"], compensated, rtol=1e-9)
    np.testing.assert_allclose(found["s = 1"], torch.sigmoid(e) * torch.sigmoid(-e), rtol=1e-9)
    np.testing.assert_allclose(found["s = 20"], 20 * torch.sigmoid(20 * e) * torch.sigmoid(-20 * e), rtol=1e-9)


def test_the_ranges_are_those_of_training() -> None:
    assert (formula_plots.COSH_RANGE, formula_plots.EMBEDDING_RANGE) == (COSH_RANGE, EMBEDDING_RANGE)


def test_it_is_drawn_wide_with_compensation_only() -> None:
    drawn = embedding_gradient(100, batches=50)
    assert {"s = 1", "s = 100", "annealed", "annealed and compensated"} <= set(
        re.findall(r"<text[^>]*>([^<]*)</text>", drawn.svg)
    )
    assert "an epoch of 50 batches" in drawn.caption
    found = mean_gradients(np.array([3.0]), 400, 1000)
    assert found["annealed and compensated"][0] > 100 * found["annealed"][0]
    with pytest.raises(HatrackError, match="s_max must be 1 or more"):
        embedding_gradient(0)
