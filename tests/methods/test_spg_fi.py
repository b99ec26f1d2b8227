"""SPG-FI against numpy: normalised Fisher information, its maximum over tasks, and steps held back by it."""

from __future__ import annotations

import numpy as np
from test_importance import standardised
from tiny import add_head, arrays, as_arrays, batch, begin, close, feed, fisher, gradient, model, samples

from hatrack.methods.spg_fi import SPGFisher


def test_three_tasks_equal_the_restatement() -> None:
    m, method = model(heads=()), SPGFisher(lr=0.1)
    method.attach(m)
    gamma: dict = {}
    for task in range(3):
        add_head(m, 3, seed=task)
        x, y = samples(task, n=50)  # two batches of 20 and one of 10
        stepper, p = begin(method, task, x, y), arrays(m, task)
        for _ in range(4):
            stepper.step(batch(x, y))
            g = gradient(p, x, y)
            if gamma:
                mean = np.concatenate([v.ravel() for v in gamma.values()]).mean()
                g = {name: v * (1 - gamma.get(name, mean)) for name, v in g.items()}
            p = {name: v - 0.1 * g[name] for name, v in p.items()}
            close(arrays(m, task), p, rtol=1e-7)
        method.end_task(feed(x, y, task))
        new = {name: standardised(f) for name, f in fisher(arrays(m, task), x, y).items()}
        gamma = {name: np.maximum(v, gamma.get(name, 0)) for name, v in new.items()}
        close(as_arrays(method.importance), gamma, rtol=1e-7)
