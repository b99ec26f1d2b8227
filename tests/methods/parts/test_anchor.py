"""The quadratic pull: its value, its gradient, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import batch, begin, samples
from tiny import model as new_model

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.parts.anchor import Anchor, Pull
from hatrack.nets.model import Model

RNG = np.random.default_rng(0)
THETA = {"a": RNG.normal(size=(3, 2)), "b": RNG.normal(size=4)}
ANCHOR = {name: RNG.normal(size=v.shape) for name, v in THETA.items()}
WEIGHT = {name: RNG.uniform(size=v.shape) for name, v in THETA.items()}


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(v.copy()) for name, v in arrays.items()}


def by_hand(theta: dict[str, np.ndarray], weight: dict[str, np.ndarray]) -> float:
    total = 0.0
    for name, values in theta.items():
        for place, value in np.ndenumerate(values):
            total += weight[name][place] * (value - ANCHOR[name][place]) ** 2
    return total / 2


def test_value_and_step_are_those_of_the_formula() -> None:
    """A step of lr along the edited gradient lands where the implicit equation θ' = θ − lr·(g + k·(θ' − θ*)) holds."""
    lr, g = 0.3, 2.0
    alike = {name: np.full_like(v, 0.7) for name, v in THETA.items()}
    for given, weight in ((tensors(WEIGHT), WEIGHT), (0.7, alike)):
        theta = tensors(THETA)
        pull = Pull(theta, tensors(ANCHOR), given, lr)
        assert abs(float(pull.value()) - by_hand(THETA, weight)) < 1e-12
        for p in theta.values():
            p.grad = torch.full_like(p, g)
        pull.on_gradients()
        for name, p in theta.items():
            for place in np.ndindex(*THETA[name].shape):
                moved = THETA[name][place] - lr * float(p.grad[place])
                h, ends = 1e-5, []
                for sign in (1, -1):
                    shifted = {n: v.copy() for n, v in THETA.items()}
                    shifted[name][place] = moved + sign * h
                    ends.append(by_hand(shifted, weight))
                slope = (ends[0] - ends[1]) / (2 * h)  # of the penalty, at the new place
                assert abs(moved - (THETA[name][place] - lr * (g + slope))) < 1e-8


def test_a_step_without_weight_is_the_plain_one() -> None:
    theta = tensors(THETA)
    for p in theta.values():
        p.grad = torch.full_like(p, 2.0)
    Pull(theta, tensors(ANCHOR), {n: torch.zeros_like(p) for n, p in theta.items()}, 0.3).on_gradients()
    assert all(bool((p.grad == 2.0).all()) for p in theta.values())


def test_steps_rest_where_the_papers_loss_does() -> None:
    """On ½(θ − a)² + ½k(θ − θ*)² the minimum is (a + kθ*)/(1 + k), whatever lr·k."""
    for k in (0.1, 10.0, 1e4):
        theta = {"a": torch.zeros(1, dtype=torch.float64)}
        pull = Pull(
            theta,
            {"a": torch.tensor([-1.0], dtype=torch.float64)},
            {"a": torch.full((1,), k, dtype=torch.float64)},
            0.25,
        )
        for _ in range(400):
            theta["a"].grad = theta["a"] - 3.0
            pull.on_gradients()
            theta["a"] -= 0.25 * theta["a"].grad
        assert float(theta["a"]) == pytest.approx((3.0 - k) / (1 + k), abs=1e-9)


def test_a_parameter_without_a_gradient_gets_none() -> None:
    theta = tensors(THETA)
    theta["b"].grad = torch.zeros(4, dtype=torch.float64)
    pull = Pull(theta, tensors(ANCHOR), tensors(WEIGHT), 0.0)
    pull.on_gradients()
    assert theta["a"].grad is None
    np.testing.assert_allclose(theta["b"].grad.numpy(), WEIGHT["b"] * (THETA["b"] - ANCHOR["b"]))
    theta["b"].grad = None
    pull.on_gradients()
    assert theta["b"].grad is None


class Held(Method):
    """Weights by hand."""

    name = "held"

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.anchor = Anchor()

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, 3.0)


@pytest.mark.parametrize("weight", [1e-6, 0.1, 1e9])
def test_no_weight_makes_a_step_overshoot(weight: float) -> None:
    method, model = Held(lr=0.05), new_model(heads=(3, 3))
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y)
    shared = method.shared()
    method.anchor.hold(shared, {name: torch.full_like(p, weight) for name, p in shared.items()})
    stepper = begin(method, 1, x, y)
    assert float(method.anchor.penalty()) == 0.0
    with torch.no_grad():
        for p in model.net.parameters():
            p.add_(1.0)
    value = float(method.anchor.penalty())
    entries = sum(p.numel() for p in model.net.parameters())
    assert value == pytest.approx(entries * 0.5 * 3 * weight, rel=1e-9)
    off = []
    for _ in range(30):
        stepper.step(batch(x, y))
        off.append(max(float((p - method.anchor.anchors[n]).abs().max().detach()) for n, p in method.shared().items()))
    assert max(off) < 2.0
    if weight > 1:
        assert off[-1] < 1e-6
