"""The frozen teacher, and the soft cross-entropy by hand."""

from __future__ import annotations

import numpy as np
import torch
from tiny import model as new_model
from tiny import samples, softmax

from hatrack.methods.distillation import Teacher, soft_cross_entropy


def test_soft_cross_entropy_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(7, 4)), rng.normal(size=(7, 4))
    for t in (0.5, 1.0, 2.0):
        p, q = softmax(teacher) ** (1 / t), softmax(student) ** (1 / t)  # as LWF writes it
        p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
        got = soft_cross_entropy(torch.from_numpy(student), torch.from_numpy(teacher), t)
        assert abs(float(got) - float(-(p * np.log(q)).sum(1).mean())) < 1e-12


def test_a_teacher_answers_as_the_network_did_without_dropout_and_without_gradients() -> None:
    model = new_model(heads=(3, 2), dropout=0.5)
    x = torch.from_numpy(samples(0)[0])
    model.net.eval()
    with torch.no_grad():
        before = [model.logits(x, t) for t in range(2)]
    model.net.train()
    teacher = Teacher(model.net, model.heads)
    assert model.net.training
    with torch.no_grad():
        for p in (*model.net.parameters(), *model.heads[0].parameters()):
            p.add_(1.0)
    for then, now in zip(before, teacher.logits(x), strict=True):
        assert torch.equal(then, now)
        assert not now.requires_grad
    again = Teacher.from_state(new_model().net, model.heads, teacher.state())
    for then, now in zip(before, again.logits(x), strict=True):
        assert torch.equal(then, now)
    assert all(p.requires_grad for p in (*model.net.parameters(), *model.heads[0].parameters()))


def test_heads_in_single_precision_stand_on_a_teacher_in_double() -> None:
    net = torch.nn.Linear(4, 3).double()
    head = torch.nn.Linear(3, 2)
    x = torch.ones(5, 4, dtype=torch.float64)
    [logits] = Teacher(net, [head]).logits(x)
    assert torch.equal(logits, head(net(x).float()))
