"""What no learner can be made of, each in one line, and the neighbour of it that can."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.methods import METHODS


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:2]


class Turned(nn.Module):
    """Has a complex parameter in its middle; what goes in and comes out is real."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 9), nn.Linear(9, 9)
        self.turn = nn.Parameter(torch.randn(9, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.outer((self.inner(x.flatten(1)) * self.turn).abs())
        return hidden


class Looked(nn.Module):
    """Looks every pixel up in a table whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.outer = nn.Embedding(2, 3, sparse=True), nn.Linear(192, 9)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.outer(self.table((x.flatten(1) > 0).long()).flatten(1))
        return hidden


@pytest.mark.parametrize(
    ("net", "trained", "line"),
    [
        (Turned, "turn", r"turn is complex \(complex64\), and only real parameters can be learned; hold its torch"),
        (Looked, "table", "table is an embedding with sparse gradients, which cannot be clipped; make it with"),
    ],
)
def test_what_no_step_can_train_is_refused_unless_it_is_frozen(
    net: type[nn.Module], trained: str, line: str, tasks: list[Task]
) -> None:
    with pytest.raises(HatrackError, match=line):
        Learner(net(), METHODS["hat"](), epochs=1)
    frozen = net()
    getattr(frozen, trained).requires_grad_(False)
    Learner(frozen, METHODS["hat"](), epochs=1).learn(tasks[0])


def test_two_parameters_in_one_memory_are_refused_and_neighbours_are_not() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight.data = net[0].weight.data
    with pytest.raises(HatrackError, match=r"0\.weight and 1\.weight are two parameters in one memory"):
        Learner(net)
    memory = torch.zeros(32)
    net[0].weight.data, net[1].weight.data = memory[:16].view(4, 4), memory[16:].view(4, 4)
    Learner(net)
    net[1].weight = net[0].weight
    Learner(net)


@pytest.mark.parametrize("lazy", [lambda: nn.LazyLinear(5), lambda: nn.LazyBatchNorm1d(affine=False)])
def test_a_network_without_shapes_is_refused_until_it_has_run(lazy: Callable[[], nn.Module]) -> None:
    net = nn.Sequential(nn.Linear(4, 4), lazy())
    with pytest.raises(HatrackError, match=r"1\.\w+ has no shape yet .* run the network on one batch first"):
        Learner(net)
    net(torch.zeros(2, 4))
    Learner(net)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_network_is_refused() -> None:
    with pytest.raises(HatrackError, match="give the one it was made from"):
        Learner(torch.jit.script(nn.Linear(2, 2)))


def test_a_compiled_network_is_refused() -> None:
    made = torch.compile(nn.Linear(2, 2), backend="eager")
    with pytest.raises(HatrackError, match=r"torch\.compile .* give the one it was made from"):
        Learner(made)
