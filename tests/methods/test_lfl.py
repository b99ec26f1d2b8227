"""LFL's loss and its gradient against a restatement in numpy."""

from __future__ import annotations

import torch
from tiny import arrays, backward_features, batch, begin, close, cross_entropy, feed, forward, gradient, samples
from tiny import model as new_model

from hatrack.methods.lfl import LFL

CPU = torch.device("cpu")

LAM, LR = 0.3, 0.02


def test_steps_of_the_second_task_equal_the_restatement() -> None:
    method, model = LFL(lam=LAM, lr=LR, clip=1e9), new_model(heads=(3, 3))
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y).step(batch(x, y))
    method.end_task(feed(x, y))
    x, y = samples(1, n=10)
    stepper, p, old_head = begin(method, 1, x, y), arrays(model, 1), arrays(model, 0)
    h_old = forward(p, x)[3]
    for _ in range(4):
        z1, h1, z2, h = forward(p, x)
        expected = cross_entropy(p, x, y)
        for n in range(len(y)):
            expected += LAM / 2 * sum(float(d) ** 2 for d in h[n] - h_old[n]) / len(y)
        assert abs(float(method.loss(batch(x, y)).detach()) - expected) < 1e-10
        stepper.step(batch(x, y))
        g, pull = gradient(p, x, y), backward_features(p, x, LAM * (h - h_old) / len(y), (z1, h1, z2))
        p = {name: v - LR * (g[name] + pull.get(name, 0.0)) for name, v in p.items()}
    close(arrays(model, 1), p, rtol=1e-7)
    for name in ("head.weight", "head.bias"):
        assert (arrays(model, 0)[name] == old_head[name]).all()


def test_features_are_compared_without_dropout_so_that_nothing_pulls_at_the_start() -> None:
    method, model = LFL(lam=5.0), new_model(heads=(3, 3), dropout=0.5)
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    begin(method, 1, x, y)
    torch.manual_seed(1)
    loss = method.loss(batch(x, y))
    torch.manual_seed(1)
    assert float(loss.detach()) == float(super(LFL, method).loss(batch(x, y)).detach())
    assert model.net.training


def test_the_teacher_survives_a_round_trip() -> None:
    method, model = LFL(), new_model()
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    other = LFL()
    other.attach(new_model())
    other.load_state(method.state(), 1, CPU)
    inputs = torch.from_numpy(x)
    assert torch.equal(other.teacher.features(inputs, 0), method.teacher.features(inputs, 0))
