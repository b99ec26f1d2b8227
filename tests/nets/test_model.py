"""The model reaches every tensor of the network it is given, or says which it cannot reach."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.data.inputs import as_floats
from hatrack.methods import METHODS
from hatrack.nets.model import Model
from hatrack.swap import Slots
from hatrack.targets import Classification

CPU = torch.device("cpu")
PROMISING = ["hat", "pmask", "packnet", "supsup", "pathnet", "sgd-frozen", "one"]


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:2]


def shifted(task: Task) -> Task:
    """The same task with inputs three times as large, beyond anything that the first one has shown."""
    parts = [(3 * as_floats(split.on(CPU)[0]) + 1, split.on(CPU)[1]) for split in (task.train, task.test)]
    return Task(task.name, *(parts[0], parts[1], parts[1]))


class PutAside(nn.Module):
    """Keeps its weight in a second place, where only that place is used."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(64, 9), nn.Linear(9, 9)
        if way == "list":
            self.kept = [self.inner.weight]
            self.use = lambda x: F.linear(x, self.kept[0])
        elif way == "partial":
            self.use = partial(F.linear, weight=self.inner.weight)
        else:
            turned = self.inner.weight.t()
            self.use = lambda x: x @ turned

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.outer(torch.relu(self.use(x.flatten(1))))
        return hidden


@pytest.mark.parametrize("way", ["list", "partial", "view"])
def test_a_parameter_that_no_mask_reaches_is_refused(way: str, tasks: list[Task]) -> None:
    with pytest.raises(HatrackError, match=r"PutAside uses inner\.weight from where it was put aside"):
        Learner(PutAside(way), METHODS["hat"](), epochs=1).learn(tasks[0])


def test_trying_the_network_out_changes_nothing() -> None:
    net = nn.Sequential(nn.Embedding(5, 3, max_norm=0.1), nn.Flatten(), nn.BatchNorm1d(12))
    before = {name: t.clone() for name, t in net.state_dict().items()}
    model = Model(net, CPU)
    model.meet(torch.tensor([[0, 1, 2, 3]]))
    model.add_task(Classification(2), torch.Generator())
    assert model.heads[0].in_features == 12
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert net.training


class TwoNames(nn.Module):
    """One layer under two names, and one parameter in two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.layer, self.other = nn.Linear(64, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.again = nn.Sequential(self.layer, nn.Tanh())
        self.other.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.again(self.layer(self.enter(x.flatten(1))))
        return torch.tanh(self.other(hidden))


@pytest.mark.parametrize("method", PROMISING)
def test_a_layer_under_two_names_gets_its_own_weights_back(method: str, tasks: list[Task]) -> None:
    net = TwoNames()
    own = dict(net.named_parameters())
    learner = Learner(net, METHODS[method](), epochs=2)
    for task in tasks:
        learner.learn(task)
    verdict = learner.verify()
    assert verdict.ok, str(verdict)
    assert all(p is own[name] for name, p in net.named_parameters())
    assert net.other.weight is net.layer.weight


def test_a_tensor_stands_in_all_its_places_and_nothing_stays() -> None:
    net = TwoNames()
    weight = net.layer.weight
    seen: list[bool] = []
    zeros = torch.zeros(12, 12)

    def forward(_: Tensor) -> Tensor:
        seen.extend([net.layer.weight is zeros, net.again[0].weight is zeros, net.other.weight is zeros])
        raise RuntimeError

    with pytest.raises(RuntimeError), Slots(net).holding({"layer.weight": zeros}):
        forward(zeros)
    assert seen == [True] * 3
    assert net.layer.weight is net.other.weight is weight


class Range(nn.Module):
    """Divides by the largest input it has seen in training; the buffer is written into, or put in its place."""

    def __init__(self, rebind: bool) -> None:
        super().__init__()
        self.rebind = rebind
        self.register_buffer("top", torch.ones(()))
        self.top: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            top = torch.maximum(self.top, x.detach().amax())
            if self.rebind:
                self.top = top
            else:
                self.top.copy_(top)
        return x / self.top


def ranged(rebind: bool) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), Range(rebind), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU())


@pytest.mark.parametrize("method", PROMISING)
def test_a_buffer_that_first_moves_in_the_second_task_leaves_the_first_as_it_was(
    method: str, tasks: list[Task]
) -> None:
    learner = Learner(ranged(False), METHODS[method](), epochs=2)
    for task in (tasks[0], shifted(tasks[1])):
        learner.learn(task)
    verdict = learner.verify()
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("method", ["one", "packnet", "pmask"])
def test_a_buffer_that_is_replaced_counts_like_one_that_is_written_into(method: str, tasks: list[Task]) -> None:
    tops = []
    for rebind in (False, True):
        learner = Learner(ranged(rebind), METHODS[method](), epochs=2)
        for task in (shifted(tasks[0]), shifted(tasks[1])):
            learner.learn(task)
        tops.append([float(own["1.top"]) for own in learner.model.private])
    assert tops[0] == tops[1]
    assert min(tops[0]) > 3


def test_a_shared_buffer_that_is_replaced_keeps_its_tensor(tasks: list[Task]) -> None:
    """Saving, the best epoch and recorded steps hold on to the tensor, wherever forward() puts the value."""
    ends = []
    for rebind in (False, True):
        net = ranged(rebind)
        buffer = net[1].top
        learner = Learner(net, METHODS["sgd"](), epochs=2)
        learner.learn(shifted(tasks[0]))
        assert net[1].top is buffer
        assert float(buffer) > 3
        ends.append([t.detach().clone() for t in net.state_dict().values()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def spectral() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(64, 20))
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), nn.Linear(20, 20), nn.ReLU())


@pytest.mark.parametrize(
    ("method", "more"), [("sgd-frozen", {}), ("hat", {"norm": "frozen"}), ("packnet", {"norm": "frozen"})]
)
@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
def test_frozen_means_every_buffer_that_moves(method: str, more: dict[str, str], tasks: list[Task]) -> None:
    learner = Learner(spectral(), METHODS[method](**more), epochs=2)
    for task in tasks:
        learner.learn(task)
    verdict = learner.verify()
    assert verdict.ok, str(verdict)


def unfrozen(method: str, task: Task) -> Learner:
    """A learner whose first layer was frozen while it learned `task`, and no longer is."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU())
    net[1].requires_grad_(False)
    learner = Learner(net, METHODS[method](), epochs=2)
    learner.learn(task)
    net[1].requires_grad_(True)
    return learner


@pytest.mark.parametrize("method", ["pmask", "packnet", "supsup", "pathnet", "sgd-frozen", "finetune-copy", "hat"])
def test_what_is_unfrozen_later_is_refused_or_kept_apart(method: str, tasks: list[Task]) -> None:
    learner = unfrozen(method, tasks[0])
    assert learner.verify().ok
    if method in ("finetune-copy", "hat"):
        learner.learn(tasks[1])
    else:
        with pytest.raises(HatrackError, match=r"1\.bias did not ask for gradients when the learner was made"):
            learner.learn(tasks[1])
    assert learner.verify().ok


@pytest.mark.parametrize("method", ["ewc", "imm-mean", "si", "fisher-mask", "spg", "den"])
def test_what_is_unfrozen_later_is_refused_where_a_method_has_kept_nothing_of_it(
    method: str, tasks: list[Task]
) -> None:
    learner = unfrozen(method, tasks[0])
    with pytest.raises(HatrackError, match=r"1\.bias did not ask for gradients when the learner was made"):
        learner.learn(tasks[1])


class Wide(nn.Module):
    """Answers in double precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x.flatten(1))).double()


def test_features_of_another_precision_reach_the_head(tasks: list[Task]) -> None:
    learner = Learner(Wide(), METHODS["sgd"](), epochs=1)
    learner.learn(tasks[0])
    assert learner.predict(tasks[0].test.first(3), 0).dtype == torch.float32
