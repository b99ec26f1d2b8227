"""Gates, annealing, compensation and regulariser against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hatrack.masks import gates
from hatrack.masks.gates import CLOSED, anneal, compensate, flushed, gate, prices, sparsity
from hatrack.masks.weight_gates import gated_entries
from hatrack.methods.base import Clock

RNG = np.random.default_rng(3)


def test_gate_is_the_sigmoid_of_s_times_e() -> None:
    e = RNG.normal(size=50)
    expected = 1 / (1 + np.exp(-7.5 * e))
    np.testing.assert_allclose(gate(torch.from_numpy(e), 7.5).numpy(), expected, rtol=1e-12)


def test_products_meet_no_gate_that_is_next_to_nothing_and_all_slopes_stay() -> None:
    e = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    exact = 1 / (1 + np.exp(-40 * e.detach().numpy()))
    let_through = flushed(gate(e, 40.0))
    np.testing.assert_allclose(let_through.detach(), np.where(exact < CLOSED, 0, exact), rtol=1e-12)
    assert 0 < int((let_through == 0).sum()) < 50
    let_through.sum().backward()
    np.testing.assert_allclose(e.grad, 40 * exact * (1 - exact), rtol=1e-9)
    ones = torch.ones(101, dtype=torch.float64)
    _, entries = gated_entries(e, torch.tensor(40.0, dtype=torch.float64), ones, {"w": ones})
    np.testing.assert_array_equal(entries["w"].detach() == 0, exact < CLOSED)


@pytest.mark.parametrize("stretch", [2**18, 7])
def test_gates_on_weights_follow_the_formulas_in_any_layout(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "IN_CACHE", stretch)
    shapes, s, arriving = {"conv": (4, 3, 2, 2), "bias": (4,), "fc": (2, 5)}, 3.0, 0.7
    w = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    g = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    e, p = RNG.normal(size=62), RNG.uniform(size=62)
    given = {name: torch.from_numpy(x).requires_grad_() for name, x in w.items()}
    given["conv"] = given["conv"].detach().to(memory_format=torch.channels_last).requires_grad_()
    embedding = torch.from_numpy(e).requires_grad_()
    price, products = gated_entries(embedding, torch.tensor(s, dtype=torch.float64), torch.from_numpy(p), given)
    loss = arriving * price + sum((products[name] * torch.from_numpy(g[name])).sum() for name in shapes)
    loss.backward()

    a = 1 / (1 + np.exp(-s * e))
    cut = dict(zip(shapes, np.split(a, [48, 52]), strict=True))
    np.testing.assert_allclose(price.item(), (a * p).sum(), rtol=1e-12)
    for name, shape in shapes.items():
        np.testing.assert_allclose(products[name].detach(), w[name] * cut[name].reshape(shape), rtol=1e-12)
        np.testing.assert_allclose(given[name].grad, g[name] * cut[name].reshape(shape), rtol=1e-12)
    to_gates = np.concatenate([(g[name] * w[name]).reshape(-1) for name in shapes]) + arriving * p
    np.testing.assert_allclose(embedding.grad, s * a * (1 - a) * to_gates, rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 5, 100])
def test_s_goes_from_its_inverse_to_s_max_within_an_epoch(steps: int) -> None:
    s_max, clock, seen = 400.0, Clock(torch.device("cpu")), []
    clock.start(steps)
    for _ in range(steps):
        seen.append(float(anneal(clock.fraction().double(), s_max)))
        clock.advance()
    b = np.arange(1, steps + 1)
    expected = 1 / s_max + (s_max - 1 / s_max) * (b - 1) / (steps - 1) if steps > 1 else np.array([s_max])
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    assert seen[-1] == pytest.approx(s_max)
    if steps > 1:
        assert seen[0] == pytest.approx(1 / s_max)


def test_compensation_follows_the_formula_and_its_clamp() -> None:
    e = np.concatenate([RNG.uniform(-6, 6, 40), [0.2, -0.2, 6.0, -6.0]])
    q, s, s_max = RNG.normal(size=e.size), 300.0, 400.0
    scaled = np.clip(s * e, -50, 50)
    expected = q * s_max * (np.cosh(scaled) + 1) / (s * (np.cosh(e) + 1))
    got = torch.from_numpy(q.copy())
    compensate(got, torch.from_numpy(e), torch.tensor(s, dtype=torch.float64), s_max)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)
    assert np.abs(s * e).max() > 50  # the clamp was at work


def test_compensation_turns_the_annealed_slope_into_s_max_times_the_plain_one() -> None:
    """By its definition: dL/de through σ(s·e), compensated, equals s_max·σ'(e)·dL/da (inside the clamp)."""
    e = torch.linspace(-3, 3, 25, dtype=torch.float64, requires_grad=True)
    outer, s, s_max = torch.linspace(-1, 1, 25, dtype=torch.float64), 5.0, 400.0
    (gate(e, s) * outer).sum().backward()
    compensate(e.grad, e.detach(), torch.tensor(s, dtype=torch.float64), s_max)
    plain = 1 / (1 + np.exp(-e.detach().numpy()))
    np.testing.assert_allclose(e.grad.numpy(), s_max * plain * (1 - plain) * outer.numpy(), rtol=1e-9)


def test_compensation_stays_finite_in_float32() -> None:
    e = torch.tensor([6.0, -6.0, 0.0, 0.04])
    gradient = torch.ones(4)
    compensate(gradient, e, torch.tensor(400.0), 400.0)
    assert torch.isfinite(gradient).all()


def test_sparsity_is_the_share_of_free_units_spent() -> None:
    a, taken = RNG.uniform(size=30), RNG.uniform(size=30)
    expected = (a * (1 - taken)).sum() / (1 - taken).sum()
    assert float(sparsity(torch.from_numpy(a), prices(torch.from_numpy(taken)))) == pytest.approx(expected, rel=1e-12)


def test_sparsity_is_zero_with_a_finite_gradient_when_every_unit_is_taken() -> None:
    a = torch.rand(5, requires_grad=True)
    value = sparsity(a, prices(torch.ones(5)))
    value.backward()
    assert float(value.detach()) == 0
    assert torch.isfinite(a.grad).all()
