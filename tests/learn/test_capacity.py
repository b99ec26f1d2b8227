"""What the learner says when little of the network is left."""

from __future__ import annotations

import warnings

import pytest
import torch

from hatrack import HAT, Learner, Task
from hatrack.learn.capacity import CapacityWarning, blocked_parameters, taken_weights, used_weights
from hatrack.learn.fit import Epoch
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


@pytest.mark.parametrize(("units", "said"), [(17, False), (20, False), (21, True)])
def test_less_than_a_twentieth_is_little(units: int, said: bool) -> None:
    """One unit of the layer is free, and so one in `units` of its weights."""
    torch.manual_seed(0)
    learner = Learner(build("mlp", (5,), widths=(units,)), HAT(), epochs=1, batch_size=8)
    learner.learn(task("a"))
    learner.method.masks[0] = torch.arange(units) > 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.learn(task("b"))
    assert [f"fc1 {1 / units:.1%}" in str(w.message) for w in caught if w.category is CapacityWarning] == [True] * said


def test_what_the_user_froze_counts_for_nothing() -> None:
    """A layer of 6 units over a frozen one of 4; a task that opens 2 of the 6 takes 2 · 4 of its 24 weights."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 4).requires_grad_(False), torch.nn.ReLU(), torch.nn.Linear(4, 6))
    learner = Learner(net, HAT(), epochs=1, batch_size=8)
    learner.learn(task("a"))
    ranks = [site.name for site in learner.model.units.sites]
    assert ranks == ["0", "2"]
    learner.method.masks[0] = torch.tensor([1, 1, 1, 1, 1, 1, 0, 0, 0, 0]) > 0
    assert taken_weights(learner.method) == {"total": 2 / 6, "layers": {"2": 2 / 6}}
    assert {name: int(used.sum()) for name, used in used_weights(learner.method, 0).items()} == {"2.weight": 8}
    assert blocked_parameters(learner.method) == {"total": 10 / 30, "layers": {"2": 10 / 30}}


@pytest.mark.parametrize("name", ["hat", "pmask", "pathnet"])
def test_a_task_in_progress_takes_room_already(name: str) -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (5,), widths=(6, 6)), METHODS[name](), epochs=3, batch_size=8)
    seen: list[float] = []

    def compare(epoch: Epoch) -> None:
        method = learner.method
        weights = {n: p for n, p in learner.model.parameters().items() if p.ndim > 1}
        if name == "pmask":
            mine = (method.embedding > 0).split([p.numel() for p in learner.model.parameters().values()])
            taken = {n: m.view_as(p) for m, (n, p) in zip(mine, learner.model.parameters().items(), strict=True)}
        else:
            units = (method.embedding > 0) if name == "hat" else method.mask(method.paths[method.now])
            first, second = units[:6], units[6:]
            taken = {"fc1.weight": first[:, None].expand(6, 5), "fc2.weight": second[:, None] & first[None, :]}
        expected = sum(int(taken[n].sum()) for n in weights) / sum(p.numel() for p in weights.values())
        assert epoch.capacity == pytest.approx(expected)
        seen.append(expected)

    learner.learn(task("a"), on_epoch=compare)
    assert min(seen) > 0
