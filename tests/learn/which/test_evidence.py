"""The features of a task: its open units, averaged over where they stand; the same whatever way a method answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hatrack import HAT, Learner, Task
from hatrack.learn.which import evidence as module
from hatrack.learn.which.evidence import evidence
from hatrack.methods import METHODS


class Pictures(nn.Module):
    """A convolution whose channels are read by another one at every place, and one that is read flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 4, 3)
        self.third = nn.Linear(4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(x))))
        return torch.relu(self.third(hidden.flatten(1)))


def taught(name: str = "hat", count: int = 2, **settings: object) -> Learner:
    torch.manual_seed(0)
    learner = Learner(Pictures(), METHODS[name](**settings), epochs=2, batch_size=16, device="cpu")
    for i in range(count):
        x = torch.rand(48, 1, 6, 6, generator=torch.Generator().manual_seed(i))
        learner.learn(Task(f"t{i}", (x, (x[:, 0, i, 0] > 0.5).long())))
    return learner


def by_hand(learner: Learner, x: Tensor, task: int) -> Tensor:
    """Go through the network in plain torch, closed units made 0."""
    net, masks = learner.model.net, learner.masks()
    assert isinstance(net, Pictures)
    assert masks is not None
    first, second, third = (masks[f"{task}/{name}"].bool() for name in ("first", "second", "third"))
    one = torch.relu(net.first(x)) * first[:, None, None]
    two = torch.relu(net.second(one)) * second[:, None, None]
    three = torch.relu(net.third(two.flatten(1))) * third
    return torch.cat([one.mean((2, 3))[:, first], two.mean((2, 3))[:, second], three[:, third]], 1).detach()


@pytest.mark.parametrize("task", [0, 1])
def test_features_are_the_open_units_of_every_layer(task: int) -> None:
    learner = taught()
    x = torch.rand(5, 1, 6, 6)
    with learner.model.alone():
        found = evidence(learner.method, x, task)
    torch.testing.assert_close(found.features, by_hand(learner, x, task))
    assert torch.equal(found.logits, learner.predict(x, task))


def test_of_too_many_features_those_that_are_read_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = taught()
    x = torch.rand(5, 1, 6, 6)
    whole = by_hand(learner, x, 0)
    last = int(learner.masks()["0/third"].sum() + learner.masks()["0/second"].sum())  # type: ignore[index]
    monkeypatch.setattr(module, "WIDEST", last)
    with learner.model.alone():
        torch.testing.assert_close(evidence(learner.method, x, 0).features, whole[:, -last:])


def test_without_gates_features_are_what_the_head_reads() -> None:
    learner = taught("ewc")
    x = torch.rand(5, 1, 6, 6)
    with learner.model.alone(), torch.no_grad():
        torch.testing.assert_close(evidence(learner.method, x, 0).features, learner.model.net(x))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_gives_as_many_features_each_time_and_answers_as_ever(name: str) -> None:
    learner = taught(name)
    x = torch.rand(5, 1, 6, 6)
    for task in (0, 1):
        before = learner.predict(x, task)
        with learner.model.alone():
            one, two = (evidence(learner.method, x, task) for _ in range(2))
        assert torch.equal(one.features, two.features)
        assert torch.equal(one.logits, before)
        assert one.features.ndim == 2
        assert len(one.features) == 5
        assert torch.equal(learner.predict(x, task), before)


def test_asking_leaves_no_hook_behind() -> None:
    learner = taught()
    broken = torch.rand(5, 2, 6, 6)
    with pytest.raises(RuntimeError), learner.model.alone():
        evidence(learner.method, broken, 0)
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_soft_gates_count_as_open_from_one_half() -> None:
    learner = taught("hat", 1, hard=False)
    assert isinstance(learner.method, HAT)
    wide = int((learner.method.masks[0] > 0.5).sum())
    with learner.model.alone():
        assert evidence(learner.method, torch.rand(2, 1, 6, 6), 0).features.shape == (2, wide)
