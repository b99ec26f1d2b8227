"""The frozen teacher, and the soft cross-entropy by hand."""

from __future__ import annotations

import numpy as np
import torch
from tiny import model as new_model
from tiny import samples, softmax

from hatrack.methods.parts.distillation import Teacher
from hatrack.nets.model import Model
from hatrack.targets import Classification


def test_distance_of_classes_is_the_formula() -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(7, 4)), rng.normal(size=(7, 4))
    for t in (0.5, 1.0, 2.0):
        p, q = softmax(teacher) ** (1 / t), softmax(student) ** (1 / t)  # as LWF writes it
        p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
        got = Classification(4).distance(torch.from_numpy(student), torch.from_numpy(teacher), t)
        assert abs(float(got) - float(-(p * np.log(q)).sum(1).mean())) < 1e-12


def test_a_teacher_answers_as_the_network_did_without_dropout_and_without_gradients() -> None:
    model = new_model(heads=(3, 2), dropout=0.5)
    x = torch.from_numpy(samples(0)[0])
    model.net.eval()
    with torch.no_grad():
        before = [model.logits(x, t) for t in range(2)]
    model.net.train()
    teacher = Teacher(model)
    teacher.learn(heads=2)
    with torch.no_grad():
        for p in (*model.net.parameters(), *model.heads[0].parameters()):
            p.add_(1.0)
    for then, now in zip(before, teacher.logits(x, 0), strict=True):
        assert torch.equal(then, now)
        assert not now.requires_grad
    assert model.net.training
    again = Teacher(model)
    again.load_state(teacher.state(), 1, torch.device("cpu"))
    for then, now in zip(before, again.logits(x, 0), strict=True):
        assert torch.equal(then, now)
    assert all(p.requires_grad for p in (*model.net.parameters(), *model.heads[0].parameters()))


def test_heads_in_single_precision_stand_on_a_teacher_in_double() -> None:
    model = Model(torch.nn.Linear(4, 3).double(), torch.device("cpu"))
    x = torch.ones(5, 4, dtype=torch.float64)
    model.meet(x)
    model.add_task(Classification(2), torch.Generator().manual_seed(0))
    teacher = Teacher(model)
    teacher.learn(heads=1)
    [logits] = teacher.logits(x, 0)
    assert torch.equal(logits, model.heads[0](model.net(x).float()))
