"""ONE: every task's network is what training it alone from the initial weights gives, and stays so."""

from __future__ import annotations

import torch
from torch import nn

import hatrack
from hatrack import Learner
from hatrack.methods import METHODS


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 10), nn.ReLU()
    )


def test_answers_are_those_of_a_network_that_is_started_again_for_every_task() -> None:
    tasks = hatrack.tasks("split-digits", seed=0)[:3]
    one = Learner(net(), METHODS["one"](), epochs=3, device="cpu")
    restart = Learner(net(), METHODS["sgd-restart"](), epochs=3, device="cpu")
    x, then = tasks[0].test.first(50), []
    for t, task in enumerate(tasks):
        one.learn(task)
        restart.learn(task)
        then.append(restart.predict(x, t))
        assert torch.equal(one.predict(x, t), then[t])
    for t in range(3):
        assert torch.equal(one.predict(x, t), then[t])
    assert one.verify().ok
    assert all(torch.equal(t, one.model.initial[n]) for n, t in one.model.tensors().items())  # itself untouched


def test_every_task_owns_all_that_training_moves() -> None:
    learner = Learner(net(), METHODS["one"](), epochs=1, device="cpu")
    learner.learn(hatrack.tasks("split-digits", seed=0)[0])
    assert set(learner.model.private[0]) == set(learner.model.tensors())
    assert learner.method.use(0) == {}
