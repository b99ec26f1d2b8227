"""B2: every task's network is plain fine-tuning at the moment the task ends, and stays so."""

from __future__ import annotations

import torch
from test_one import net

import hatrack
from hatrack import Learner
from hatrack.methods import METHODS


def test_answers_are_those_of_plain_fine_tuning_when_each_task_had_just_ended() -> None:
    tasks = hatrack.tasks("split-digits", seed=0)[:3]
    copy = Learner(net(), METHODS["finetune-copy"](), epochs=3, device="cpu")
    plain = Learner(net(), METHODS["sgd"](), epochs=3, device="cpu")
    x, then = tasks[0].test.first(50), []
    for t, task in enumerate(tasks):
        copy.learn(task)
        plain.learn(task)
        then.append(plain.predict(x, t))
        assert torch.equal(copy.predict(x, t), then[t])
    assert all(torch.equal(copy.predict(x, t), then[t]) for t in range(3))
    assert not torch.equal(plain.predict(x, 0), then[0])  # while fine-tuning itself has moved on
    assert copy.verify().ok
