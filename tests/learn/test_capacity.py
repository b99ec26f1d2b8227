"""What the learner says when little of the network is left."""

from __future__ import annotations

import warnings

import pytest
import torch

from hatrack import HAT, Learner, Task
from hatrack.learn.capacity import CapacityWarning
from hatrack.methods import METHODS
from hatrack.nets import build


def task(name: str) -> Task:
    x, y = torch.randn(32, 5), torch.arange(32) % 2
    return Task(name, (x, y), (x, y), (x, y))


def test_a_full_network_is_announced_before_training_and_still_learns() -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (5,), widths=(6, 6)), HAT(c=0.0), epochs=1, batch_size=8)
    learner.learn(task("a"))
    learner.method.masks[0] = torch.ones(12, dtype=torch.bool)
    said_at: list[int] = []
    with pytest.warns(CapacityWarning, match=r"before 'b'.*fc1 0.0%.*fc2 0.0%") as caught:
        learner.learn(task("b"), on_epoch=lambda e: said_at.append(len(caught)))
    assert said_at[0] == 1  # before the first epoch
    assert learner.finished == 2


@pytest.mark.parametrize("name", ["sgd", "sgd-frozen"])
def test_methods_that_do_not_fill_up_say_nothing(name: str) -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (5,), widths=(6,)), METHODS[name](), epochs=1, batch_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for letter in "ab":
            learner.learn(task(letter))
