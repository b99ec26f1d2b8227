"""EWC-GI: the penalty's weights are SPG's importances, worked out by hand, and only ever grow."""

from __future__ import annotations

import numpy as np
from tiny import arrays, as_arrays, backward, batch, begin, close, feed, gradient, held, samples
from tiny import model as new_model

from hatrack.methods.ewc_gi import EWCGI


def normalised(g: np.ndarray) -> np.ndarray:
    values = [float(v) for v in g.flatten()]
    mean = sum(values) / len(values)
    std = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return np.array([abs(np.tanh((v - mean) / std)) for v in values]).reshape(g.shape)


def importance(model, task: int, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    own = gradient(arrays(model, task), x, y)
    found = {n: normalised(g * len(y)) for n, g in own.items() if not n.startswith("head.")}
    for earlier in range(task):
        p = arrays(model, earlier)
        crossed = backward(p, x, np.ones((len(y), p["head.bias"].size)))
        found = {n: np.maximum(v, normalised(crossed[n])) for n, v in found.items()}
    return found


def test_weights_are_the_largest_importances_so_far_and_hold_the_last_model() -> None:
    method, model = EWCGI(lam=2.0, lr=0.05), new_model(heads=(3, 2, 3))
    method.attach(model)
    so_far: dict = {}
    for task, classes in enumerate((3, 2, 3)):
        x, y = samples(task, n=30, classes=classes)
        stepper, p, anchor = begin(method, task, x, y), arrays(model, task), arrays(model)
        for _ in range(3):
            stepper.step(batch(x[:9], y[:9]))
            g = gradient(p, x[:9], y[:9])
            for name, gamma in so_far.items():
                g[name] = held(g[name], 2.0 * gamma, p[name] - anchor[name], 0.05)
            p = {name: v - 0.05 * g[name] for name, v in p.items()}
        close(arrays(model, task), p, rtol=1e-8)
        method.end_task(feed(x, y, task))
        new = importance(model, task, x, y)
        so_far = {n: np.maximum(v, so_far[n]) for n, v in new.items()} if so_far else new
        close(as_arrays(method.anchor.weights), so_far, rtol=1e-7)
        assert all(((w >= 0) & (w <= 1)).all() for w in so_far.values())
