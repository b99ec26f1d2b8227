"""The quadratic pull: its value, its gradient, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import torch

from hatrack.methods.anchored import Pull

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


def test_value_and_gradient_are_those_of_the_formula() -> None:
    ones = {name: np.ones_like(v) for name, v in THETA.items()}
    for given, weight in ((WEIGHT, WEIGHT), ({}, ones)):
        theta = tensors(THETA)
        pull = Pull(theta, tensors(ANCHOR), tensors(given))
        assert abs(float(pull.value()) - by_hand(THETA, weight)) < 1e-12
        for name, p in theta.items():
            p.grad = torch.full_like(p, 2.0)
        pull.on_gradients(7.0)
        for name, p in theta.items():
            for place in np.ndindex(*THETA[name].shape):
                h, ends = 1e-5, []
                for sign in (1, -1):
                    shifted = {n: v.copy() for n, v in THETA.items()}
                    shifted[name][place] += sign * h
                    ends.append(by_hand(shifted, weight))
                assert abs(float(p.grad[place]) - (2.0 + 7.0 * (ends[0] - ends[1]) / (2 * h))) < 1e-8


def test_a_parameter_without_a_gradient_gets_none() -> None:
    theta = tensors(THETA)
    theta["b"].grad = torch.zeros(4, dtype=torch.float64)
    pull = Pull(theta, tensors(ANCHOR), tensors(WEIGHT))
    pull.on_gradients(2.0)
    assert theta["a"].grad is None
    np.testing.assert_allclose(theta["b"].grad.numpy(), 2 * WEIGHT["b"] * (THETA["b"] - ANCHOR["b"]))
    theta["b"].grad = None
    pull.on_gradients(2.0)
    assert theta["b"].grad is None
