"""TAG's accumulators and steps over three tasks against numpy, float64."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from hatrack.methods.tag import TAG


def numpy_steps(p: tiny.Arrays, batches: list, old: list, task: int, lr: float, b: float) -> tuple:
    """Steps of one task, entry by entry as the paper writes them; returns its M and V."""
    m = {n: np.zeros_like(v) for n, v in p.items()}
    v = {n: np.zeros_like(w) for n, w in p.items()}
    for x, y in batches:
        for name, g in tiny.gradient(p, x, y).items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.99 * v[name] + 0.01 * g**2
            total = v[name] * (np.exp(-b) if task else 1.0)
            for before_m, before_v in old if not name.startswith("head.") else []:
                dot = (m[name] * before_m[name]).sum()
                cos = dot / (np.linalg.norm(m[name]) * np.linalg.norm(before_m[name]))
                total = total + np.exp(-b * cos) * before_v[name]
            p[name] = p[name] - lr * g / (np.sqrt(total) + 1e-8)
    return m, v


@pytest.mark.parametrize("b", [5.0, 1.0])
def test_three_tasks_equal_numpy(b: float) -> None:
    model = tiny.model(heads=())
    method = TAG(b=b, lr=0.01)
    method.attach(model)
    old = []
    for task in range(3):
        tiny.add_head(model, 3, task)
        x, y = tiny.samples(task, n=32)
        batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8)]
        expected = tiny.arrays(model, task)
        stepper = tiny.begin(method, task, x, y)
        for part in batches:
            stepper.step(tiny.batch(*part))
        old.append(numpy_steps(expected, batches, old, task, 0.01, b))
        tiny.close(tiny.arrays(model, task), expected, rtol=1e-7)
        method.end_task(tiny.feed(x, y, task))
    for t, (m, v) in enumerate(old):
        for name in ("fc1.weight", "fc2.bias"):
            direction = m[name] / np.linalg.norm(m[name])
            np.testing.assert_allclose(method.directions[t][f"net/{name}"].numpy(), direction, rtol=1e-7)
            np.testing.assert_allclose(method.squares[t][f"net/{name}"].numpy(), v[name], rtol=1e-7)
    assert not any("head" in key for key in method.state())


def test_a_task_that_moves_against_an_old_one_takes_smaller_steps() -> None:
    model = tiny.model()
    method = TAG()
    method.attach(model)
    moves = {}
    for sign in (1.0, -1.0):
        method.directions, method.squares = [], []
        method.task = 0
        g = {f"net/{n}": torch.ones_like(p) for n, p in model.parameters().items()}
        method.directions = [{n: t / t.norm() for n, t in g.items()}]
        method.squares = [{n: torch.ones_like(t) for n, t in g.items()}]
        tiny.add_head(model, 3)
        x, y = tiny.samples(0)
        method.begin_task(1, tiny.feed(x, y, 1), torch.Generator())
        for p in method.moved.values():
            p.grad = sign * torch.ones_like(p)
        method.after_backward()
        moves[sign] = float(model.net.fc1.weight.grad.abs().mean())
    # Σ αV = e^{−5·1}·0.01 + e^{∓5}·1
    for sign, move in moves.items():
        assert move == pytest.approx(1 / np.sqrt(np.exp(-5) * 0.01 + np.exp(-5 * sign)), rel=1e-6)


def test_a_parameter_without_gradient_leaves_no_nan() -> None:
    model = tiny.model()
    method = TAG()
    method.attach(model)
    x, y = tiny.samples(0)
    method.begin_task(0, tiny.feed(x, y), torch.Generator())
    method.end_task(tiny.feed(x, y))  # nothing was ever moved
    assert all(torch.isfinite(t).all() for t in method.state().values())
