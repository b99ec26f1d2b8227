"""SI against its restatement in numpy, and against what a path integral means: the fall of the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import arrays, as_arrays, batch, begin, clipped, close, cross_entropy, feed, gradient, held, samples
from tiny import model as new_model

from hatrack import Learner, Task
from hatrack.learn.fit import Epoch
from hatrack.learn.step import Stepper
from hatrack.methods.si import SI
from hatrack.nets import build

LR, C, XI = 0.05, 0.7, 0.02


@pytest.mark.parametrize("clip", [10_000.0, 0.2], ids=["unclipped", "clipped"])
def test_three_tasks_equal_the_restatement(clip: float) -> None:
    method, model = SI(c=C, xi=XI, lr=LR, clip=clip), new_model(heads=(3, 3, 3))
    method.attach(model)
    big: dict[str, np.ndarray] = {}
    for task in range(3):
        x, y = samples(task, n=40)
        stepper, p, start = begin(method, task, x, y), arrays(model, task), arrays(model)
        path = {name: np.zeros_like(v) for name, v in start.items()}
        for b in range(6):
            rows = slice(6 * b, 6 * b + 6)
            stepper.step(batch(x[rows], y[rows]))
            plain = gradient(p, x[rows], y[rows])
            full = {n: held(g, 2 * C * big[n], p[n] - start[n], LR) if n in big else g for n, g in plain.items()}
            moved = {n: -LR * g for n, g in clipped(full, clip).items()}
            p = {n: v + moved[n] for n, v in p.items()}
            for n in path:
                path[n] -= plain[n] * moved[n]
        close(arrays(model, task), p, rtol=1e-8)
        close({n.removeprefix("path/"): v for n, v in as_arrays(method.along()).items()}, path, rtol=1e-7)
        method.end_task(feed(x, y, task))
        for n in path:
            new = path[n] / ((p[n] - start[n]) ** 2 + XI)
            big[n] = np.maximum(0, big[n] + new if n in big else new)
        close(as_arrays(method.anchor.weights), big, rtol=1e-7)
        close(as_arrays(method.anchor.anchors), arrays(model))


def test_the_path_adds_up_to_the_fall_of_the_loss() -> None:
    """Σ ω = L(start) − L(end) for small steps, whatever the optimiser; heads hold still, so that all is shared."""
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        method, model = SI(), new_model()
        method.attach(model)
        x, y = samples(3)
        begin(method, 0, x, y)
        stepper = Stepper(method, optimizer(model.net.parameters(), lr=1e-3))
        before = cross_entropy(arrays(model, 0), x, y)
        for _ in range(200):
            stepper.step(batch(x, y))
        fall = before - cross_entropy(arrays(model, 0), x, y)
        assert fall > 1e-3
        assert sum(float(w.sum()) for w in method.path.values()) == pytest.approx(fall, rel=0.03)


def test_importance_never_falls_below_zero() -> None:
    method, model = SI(), new_model()
    method.attach(model)
    x, y = samples(3)
    begin(method, 0, x, y)
    for w in method.path.values():
        w.fill_(-1.0)
    method.end_task(feed(x, y))
    assert all(float(w.max()) == 0.0 == float(w.min()) for w in method.anchor.weights.values())


def test_the_papers_constants() -> None:
    assert (SI().c, SI().xi) == (0.1, 0.1)


def test_steps_that_the_best_epoch_undoes_do_not_count() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 6), torch.randint(3, (60,))
    learner = Learner(build("mlp", (6,), widths=(20,), dropout=0.0), SI(lr=0.3), epochs=30, batch_size=8, device="cpu")
    paths, best = [], []

    def look(epoch: Epoch) -> None:
        paths.append({n: t.clone() for n, t in learner.method.path.items()})
        best.append(epoch.best)

    learner.learn(Task("noise", (x, y), (x.flip(0), y)), on_epoch=look)
    chosen = max(i for i, is_best in enumerate(best) if is_best)
    assert chosen < len(paths) - 1
    assert all(torch.equal(t, paths[chosen][n]) for n, t in learner.method.path.items())
    assert any(not torch.equal(t, paths[-1][n]) for n, t in learner.method.path.items())
