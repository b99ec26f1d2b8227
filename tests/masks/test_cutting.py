"""Which sites a cut-out would leave whole: found without a task, and the same that a cut-out of a task does leave."""

from __future__ import annotations

from threading import Lock

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack.masks.cutting import bearable, copied, stay_whole
from hatrack.masks.trace import derive
from ship.test_cut_out import learned
from zoo import ZOO, RootMeanSquare, unit_map

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.CapacityWarning")
FAST = ("alexnet", "tied-parameter", "lstm-deep", "shuffle", "vit")
EVEN = ("bare",)  # two blocks of three units: every third closed is even, every other one is not


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in ZOO])
def test_says_what_a_cut_out_does(name: str) -> None:
    learner, _ = learned(name)
    cut = learner.cut_out(0)
    noted = {note.split(" stays at ")[0] for note in cut.notes}
    left_whole = {site for site, (left, full) in cut.sites.items() if left == full and site in noted}
    said = stay_whole(ZOO[name].build(), unit_map(name), ZOO[name].batch(1))
    assert said.keys() >= left_whole if name in EVEN else said.keys() == left_whole


class Steps(nn.Module):
    """Three layers; between the first two, what is given."""

    def __init__(self, between: object) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 8), nn.Linear(8, 6)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.c(torch.tanh(self.b(self.between(torch.tanh(self.a(x)))))))


def shuffled(x: Tensor) -> Tensor:
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1)


@pytest.mark.parametrize(
    ("between", "why"),
    [
        (lambda x: x.view(-1, 6), "shape '[-1, 6]' is invalid for input of size 3"),
        (shuffled, "unflatten: Provided sizes [2, -1] don't multiply up to the size of dim 1 (3) in the input tensor"),
        (RootMeanSquare(6), "its answers would change"),
    ],
    ids=["view", "shuffle", "norm"],
)
def test_names_the_site_and_the_reason(between: object, why: str) -> None:
    torch.manual_seed(0)
    found = hatrack.explain(Steps(between), torch.zeros(1, 4))
    assert found.whole == {"a": why}
    assert f"At full width in a cut-out, with zeros for closed units:\n  a  {why[:40]}" in str(found)


def test_says_nothing_where_all_can_be_cut() -> None:
    found = hatrack.explain(Steps(nn.Identity()), torch.zeros(1, 4))
    assert found.whole == {}
    assert "cut-out" not in str(found)


def test_features_may_be_a_part_of_the_output() -> None:
    class Pair(Steps):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            return {"first": super().forward(x), "rest": x}

    assert hatrack.explain(Pair(nn.Identity()), torch.zeros(1, 4), features="first").whole == {}


def test_a_branch_that_starts_at_zero_hides_nothing() -> None:
    class Scaled(Steps):
        def __init__(self) -> None:
            super().__init__(nn.Identity())
            self.scale = nn.Parameter(torch.zeros(6))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.a(x))
            return torch.tanh(self.c(torch.tanh(self.b(y)))) + self.scale * shuffled(y)

    assert set(hatrack.explain(Scaled(), torch.zeros(1, 4)).whole) == {"a"}


def test_leaves_the_network_as_it_is() -> None:
    net = Steps(nn.Identity()).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    units = derive(net, torch.zeros(1, 4))
    stay_whole(net, units, torch.zeros(1, 4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    assert not any(m._forward_pre_hooks for m in net.modules())


def test_what_cannot_be_copied_is_said_and_not_raised() -> None:
    net = Steps(nn.Identity())
    net.lock = Lock()
    why = "Steps cannot be copied, so that none can be cut: cannot pickle '_thread.lock' object"
    assert set(hatrack.explain(net, torch.zeros(1, 4)).whole.values()) == {why}
    with pytest.raises(hatrack.HatrackError, match="Steps cannot be copied"):
        copied(net)


def test_goes_on_site_by_site_where_all_at_once_is_refused() -> None:
    net = Steps(nn.Identity())
    units = derive(net, torch.zeros(1, 4))
    sites = {site.name: slice(site.start, site.start + site.size) for site in units.sites}
    gates = torch.arange(units.size) % 2 == 0
    gone, why = bearable(net, units, gates, lambda gone: "no" if bool(gone[sites["b"]].any()) else None)
    assert why["b"] == "no"
    assert gone.tolist() == [not g and not sites["b"].start <= i < sites["b"].stop for i, g in enumerate(gates)]
