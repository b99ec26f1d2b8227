"""EWC against its restatement in numpy: the Fisher, how it is merged, the penalty, and whole steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import (
    add_head,
    arrays,
    as_arrays,
    batch,
    begin,
    clipped,
    close,
    cross_entropy,
    feed,
    fisher,
    gradient,
    held,
    samples,
)
from tiny import model as new_model

from hatrack.methods.ewc import EWC

CPU = torch.device("cpu")

LR = 0.05


def steps(method: EWC, task: int, seed: int, fish: dict | None, anchor: dict | None, count: int = 5) -> None:
    """Train both on the same batches, and compare after every step."""
    x, y = samples(seed, n=12)
    stepper = begin(method, task, x, y)
    p = arrays(method.model, task)
    for _ in range(count):
        stepper.step(batch(x, y))
        g = gradient(p, x, y)
        if fish is not None:
            for name, f in fish.items():
                g[name] = held(g[name], method.lam * f, p[name] - anchor[name], LR)
        p = {name: v - LR * clipped(g, method.clip)[name] for name, v in p.items()}
        close(arrays(method.model, task), p, rtol=1e-8)


@pytest.mark.parametrize("clip", [100.0, 0.3], ids=["unclipped", "clipped"])
def test_three_tasks_equal_the_restatement(clip: float) -> None:
    method, model = EWC(lr=LR, clip=clip, lam=50.0), new_model(heads=(3, 3, 3))
    method.attach(model)
    merged: dict | None = None
    anchor: dict | None = None
    for task in range(3):
        steps(method, task, task, merged, anchor)
        x, y = samples(10 + task, n=50)  # two batches of 20 and one of 10
        method.end_task(feed(x, y, task))
        new = fisher(arrays(model, task), x, y)
        merged = new if merged is None else {n: (f + task * merged[n]) / (task + 1) for n, f in new.items()}
        anchor = arrays(model)
        close(as_arrays(method.anchor.weights), merged)
        close(as_arrays(method.anchor.anchors), anchor)


def test_each_is_one_penalty_for_every_old_task_around_its_own_weights() -> None:
    """Steps equal those of the explicit sum over tasks, implicit as all of them: kept as one Fisher and one anchor."""
    lam = 50.0
    method, model = EWC(lr=LR, lam=lam, merge="each", clip=1e9), new_model(heads=(3, 3, 3, 3))
    method.attach(model)
    kept: list[tuple[dict, dict]] = []
    for task in range(4):
        x, y = samples(task, n=12)
        stepper, p = begin(method, task, x, y), arrays(model, task)
        for _ in range(4):
            stepper.step(batch(x, y))
            g = gradient(p, x, y)
            for name in kept[0][0] if kept else ():
                pull = sum(lam * f[name] * (p[name] - theta[name]) for f, theta in kept)
                g[name] = (g[name] + pull) / (1 + LR * lam * sum(f[name] for f, _ in kept))
            p = {name: v - LR * g[name] for name, v in p.items()}
            close(arrays(model, task), p, rtol=1e-7)
        x, y = samples(10 + task, n=30)
        method.end_task(feed(x, y, task))
        kept.append((fisher(arrays(model, task), x, y), arrays(model)))


def test_losses_include_the_penalty_and_the_fisher_does_not() -> None:
    method, model = EWC(lam=30.0, lr=LR), new_model(heads=(3,))
    method.attach(model)
    x, y = samples(1)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    anchor, fish = arrays(model), as_arrays(method.anchor.weights)
    add_head(model, 3, seed=1)
    begin(method, 1, x, y)
    with torch.no_grad():
        for p in model.net.parameters():
            p.add_(0.3)
    now = arrays(model)
    penalty = 0.5 * sum((30.0 * fish[n] * (now[n] - anchor[n]) ** 2).sum() for n in fish)
    plain = cross_entropy(arrays(model, 1), x, y)
    assert penalty > 1e-3
    assert float(method.loss(batch(x, y)).detach()) == pytest.approx(plain + penalty, rel=1e-9)
    with torch.no_grad():
        logits = method.predict(torch.from_numpy(x), 1)
    assert float(method.valid_loss(logits, torch.from_numpy(y), 1)) == pytest.approx(plain + penalty, rel=1e-9)
    method.end_task(feed(x, y, 1))
    new = fisher(arrays(model, 1), x, y)
    close(as_arrays(method.anchor.weights), {n: (new[n] + fish[n]) / 2 for n in new})


def test_dropout_does_not_reach_the_fisher() -> None:
    method, model = EWC(), new_model(heads=(3,), dropout=0.5)
    method.attach(model)
    x, y = samples(1)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    close(as_arrays(method.anchor.weights), fisher(arrays(model, 0), x, y))


def test_the_papers_constants() -> None:
    assert (EWC().lam, EWC().clip) == (5000.0, 100.0)


def test_state_round_trip() -> None:
    method, model = EWC(), new_model()
    method.attach(model)
    x, y = samples(1)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    other = EWC()
    other.attach(new_model())
    other.load_state(method.state(), 1, CPU)
    close(as_arrays(other.anchor.weights), as_arrays(method.anchor.weights), rtol=0, atol=0)
    close(as_arrays(other.anchor.anchors), as_arrays(method.anchor.anchors), rtol=0, atol=0)
    assert np.all([" " not in key for key in method.state()])
