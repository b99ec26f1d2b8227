"""Every network of the zoo learns three tasks, under an optimiser that moves everything it can, and forgets nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import Learner
from hatrack.learn.groups import Groups
from hatrack.methods import METHODS
from zoo import ZOO, Lively, alive, tasks, unit_map

pytestmark = [
    pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning"),
    pytest.mark.filterwarnings("ignore::hatrack.learn.capacity.CapacityWarning"),
]


def pushy(parameters: Groups) -> torch.optim.Optimizer:
    """Momentum and decay move an entry even when its gradient is zero."""
    return torch.optim.AdamW([*parameters, *parameters["gates"]], lr=0.02, weight_decay=0.1)


@pytest.mark.parametrize("name", ZOO)
def test_three_tasks_without_drift(name: str) -> None:
    kept = ZOO[name]
    net = kept.build()
    learner = Learner(net, Lively(), pushy, epochs=2, batch_size=8)
    learner.model.__dict__["units"] = unit_map(name)  # what the learner would find itself, traced once for all tests
    first, *later = tasks(kept)
    learner.learn(first)
    after_first = {n: p.detach().clone() for n, p in net.named_parameters()}
    answers = learner.predict(kept.batch(5, seed=99), 0)
    for task in later:
        learner.learn(task)
    assert alive(learner)
    verdict = learner.verify()
    assert verdict.ok, str(verdict)
    assert torch.equal(learner.predict(kept.batch(5, seed=99), 0).view(torch.int32), answers.view(torch.int32))
    moved = {n for n, p in net.named_parameters() if not torch.equal(p.detach(), after_first[n])}
    assert moved, "nothing was learned after the first task"
    assert not moved & set(kept.frozen)
    for mask in learner.method.masks:
        assert 0 < int(mask.sum()) < mask.numel(), "with all gates open or all closed the test would show nothing"


@pytest.mark.parametrize("name", ["vgg", "resnet18", "running-instance-norm", "bare-batch-norm"])
def test_shared_statistics_are_what_the_task_specific_ones_protect_from(name: str) -> None:
    """The same with norm='shared' drifts: the tests above are not true by themselves."""
    kept = ZOO[name]
    learner = Learner(kept.build(), Lively(norm="shared"), pushy, epochs=2, batch_size=8)
    for task in tasks(kept):
        learner.learn(task)
    assert not learner.verify().ok


class InPieces(nn.Module):
    """Works off a large batch in pieces, and reads one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.twice, self.last = nn.Linear(64, 30), nn.Linear(30, 30), nn.Linear(30, 20)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 16:
            return torch.cat([self(piece) for piece in x.split(16)])
        hidden = torch.tanh(self.first(x.flatten(1)))
        return torch.tanh(self.last(torch.tanh(self.twice(torch.tanh(self.twice(hidden))))))


def hooked() -> nn.Module:
    """A user's own hook centres what the second layer reads: every unit of it depends on all."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh())
    net[3].register_forward_pre_hook(lambda _, args: (args[0] - args[0].mean(-1, keepdim=True),))
    return net


@pytest.mark.parametrize("build", [InPieces, hooked])
@pytest.mark.parametrize("method", ["hat", "pathnet"])
@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
def test_gates_come_before_users_hooks_and_once_a_call(build: Callable[[], nn.Module], method: str) -> None:
    chosen = Lively() if method == "hat" else METHODS[method]()
    learner = Learner(build(), chosen, epochs=4)
    for task in hatrack.tasks("split-digits", seed=0)[:2]:
        learner.learn(task)
    verdict = learner.verify()
    assert verdict.ok, str(verdict)
