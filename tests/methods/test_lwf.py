"""LWF's loss and its gradient against a restatement in numpy."""

from __future__ import annotations

import numpy as np
import torch
from tiny import Arrays, arrays, backward, batch, begin, close, cross_entropy, feed, gradient, logits, samples, softmax
from tiny import model as new_model

from hatrack.methods.lwf import LWF

CPU = torch.device("cpu")

LAM, T, LR = 1.5, 2.0, 0.05


def learned(method: LWF, heads: tuple[int, ...] = (3, 2, 4), dropout: float = 0.0) -> Arrays:
    """Let two tasks end with a few steps each, and return the network as it is then."""
    model = new_model(heads=heads, dropout=dropout)
    method.attach(model)
    for task, classes in enumerate(heads[:2]):
        x, y = samples(task, classes=classes)
        stepper = begin(method, task, x, y)
        for _ in range(3):
            stepper.step(batch(x, y))
        method.end_task(feed(x, y, task))
    return arrays(model)


def with_head(net: Arrays, head: Arrays) -> Arrays:
    return {**{n: v for n, v in net.items() if not n.startswith("head.")}, **head}


def test_steps_of_the_third_task_equal_the_restatement() -> None:
    method = LWF(lam=LAM, temperature=T, lr=LR, clip=1e9)
    learned(method)
    model = method.model
    x, y = samples(5, classes=4)
    p = {t: arrays(model, t) for t in range(3)}
    heads = {t: {n: v for n, v in p[t].items() if n.startswith("head.")} for t in range(3)}
    net = arrays(model)
    targets = [softmax(logits(p[t], x) / T) for t in range(2)]
    stepper = begin(method, 2, x, y)
    for _ in range(4):
        now = [with_head(net, heads[t]) for t in range(3)]
        expected = cross_entropy(now[2], x, y)
        g = {2: gradient(now[2], x, y)}
        for t in range(2):
            answer = softmax(logits(now[t], x) / T)
            expected += LAM * float(-(targets[t] * np.log(answer)).sum(1).mean())
            g[t] = backward(now[t], x, LAM * (answer - targets[t]) / (T * len(y)))
        assert abs(float(method.loss(batch(x, y)).detach()) - expected) < 1e-10
        stepper.step(batch(x, y))
        net = {n: v - LR * (g[0][n] + g[1][n] + g[2][n]) for n, v in net.items()}
        heads = {t: {n: v - LR * g[t][n] for n, v in head.items()} for t, head in heads.items()}
    for t in range(3):
        close(arrays(model, t), {**net, **heads[t]}, rtol=1e-7)


def test_the_first_task_is_plain_training() -> None:
    method = LWF(lr=LR)
    method.attach(new_model())
    x, y = samples(0)
    stepper, p = begin(method, 0, x, y), arrays(method.model, 0)
    stepper.step(batch(x, y))
    g = gradient(p, x, y)
    close(arrays(method.model, 0), {n: v - LR * g[n] for n, v in p.items()})


def test_answers_are_compared_without_dropout_so_that_nothing_pulls_at_the_start() -> None:
    method = LWF(lam=LAM)
    learned(method, dropout=0.5)
    model = method.model
    x, y = samples(5, classes=4)
    begin(method, 2, x, y)
    torch.manual_seed(1)
    loss = method.loss(batch(x, y))
    torch.manual_seed(1)
    plain = super(LWF, method).loss(batch(x, y))
    model.net.train()
    old = [p for head in model.heads[:2] for p in head.parameters()]
    pull = torch.autograd.grad(loss - plain, [*model.net.parameters(), *old])
    assert max(float(g.abs().max()) for g in pull) < 1e-12
    assert model.net.training


def test_the_teacher_survives_a_round_trip() -> None:
    method = LWF()
    learned(method)
    other = LWF()
    other.attach(method.model)
    other.load_state(method.state(), 1, CPU)
    x = torch.from_numpy(samples(1)[0])
    assert len(other.teacher.logits(x, 1)) == 2
    for a, b in zip(other.teacher.logits(x, 1), method.teacher.logits(x, 1), strict=True):
        assert torch.equal(a, b)
    fresh = LWF()
    fresh.attach(new_model())
    fresh.load_state({}, 0, CPU)
    assert fresh.teacher.values == {}


def test_the_baselines_constants() -> None:
    assert (LWF().lam, LWF().temperature, LWF().clip) == (2.0, 1.0, 100.0)
