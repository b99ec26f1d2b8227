"""A-GEM: the projection when the angle is obtuse and when not, and a whole step with a memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import Arrays, arrays, backward, batch, begin, close, feed, gradient, logits, samples, softmax
from tiny import model as new_model

from hatrack.methods.agem import AGEM, project

CPU = torch.device("cpu")

RNG = np.random.default_rng(0)
SHAPES = ((3, 2), (4,), (2, 2, 2))


def flat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([p.flatten() for p in parts])


@pytest.mark.parametrize("obtuse", [True, False])
def test_gradients_are_projected_only_where_they_point_apart(obtuse: bool) -> None:
    g, ref = ([RNG.normal(size=s) for s in SHAPES] for _ in range(2))
    if (flat(g) @ flat(ref) < 0) != obtuse:
        ref = [-r for r in ref]
    got = [torch.from_numpy(p.copy()) for p in g]
    project(got, [torch.from_numpy(r) for r in ref])
    found = flat([p.numpy() for p in got])
    if obtuse:
        a, b = flat(g), flat(ref)
        np.testing.assert_allclose(found, a - (a @ b) / (b @ b) * b, rtol=1e-12)
        assert abs(found @ b) < 1e-12  # what is left is at a right angle
    else:
        assert np.array_equal(found, flat(g))


def test_a_reference_of_zeros_changes_nothing() -> None:
    g = [torch.ones(3)]
    project(g, [torch.zeros(3)])
    assert torch.equal(g[0], torch.ones(3))


def reference(nets: list[Arrays], x: np.ndarray, y: np.ndarray, source: np.ndarray) -> dict[str, np.ndarray]:
    """The gradient of the mean cross-entropy over samples that each use their own task's head, sample by sample."""
    total: dict[str, np.ndarray] = {}
    for i in range(len(y)):
        t = int(source[i])
        d = softmax(logits(nets[t], x[i : i + 1]))
        d[0, y[i]] -= 1
        for name, g in backward(nets[t], x[i : i + 1], d / len(y)).items():
            key = f"{t}.{name}" if name.startswith("head.") else name
            total[key] = total.get(key, 0.0) + g
    return total


def test_steps_of_the_third_task_equal_the_restatement() -> None:
    lr = 0.3
    method, model = AGEM(lr=lr, per_class=4, memory_batch=1000), new_model(heads=(3, 2, 4))
    method.attach(model)
    for task, classes in enumerate((3, 2)):
        x, y = samples(task, n=8, classes=classes)
        stepper = begin(method, task, x, y)
        for _ in range(100):
            stepper.step(batch(x, y))
        method.end_task(feed(x, y, task))
    mx, my, ms = (part.numpy() for part in method.memory.draw(1000)[:3])
    x, y = samples(5, classes=4)
    stepper = begin(method, 2, x, y)
    p = [arrays(model, t) for t in range(3)]
    obtuse = 0
    for _ in range(12):
        stepper.step(batch(x, y))
        g = {f"2.{n}" if n.startswith("head.") else n: v for n, v in gradient(p[2], x, y).items()}
        ref = reference(p, mx, my, ms)
        along = sum((g[n] * ref[n]).sum() for n in g if n in ref)
        if along < 0:
            obtuse += 1
            share = along / sum((r**2).sum() for r in ref.values())
            g = {n: g.get(n, 0.0) - share * ref.get(n, 0.0) for n in {**g, **ref}}
        for t in range(3):
            keys = {n: f"{t}.{n}" if n.startswith("head.") else n for n in p[t]}
            p[t] = {n: v - lr * g.get(keys[n], 0.0) for n, v in p[t].items()}
        for t in range(3):
            close(arrays(model, t), p[t], rtol=1e-6)
    assert 0 < obtuse < 12  # both cases came up


def test_memory_is_part_of_the_state() -> None:
    method = AGEM(per_class=3)
    method.attach(new_model())
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    other = AGEM()
    other.attach(new_model())
    other.load_state(method.state(), 1, CPU)
    assert len(other.memory) == 9
