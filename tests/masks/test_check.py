"""A unit map that is wrong is found out on the network itself, and costs capacity instead of the promise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import Learner
from hatrack.errors import HatrackError
from hatrack.masks import trace
from hatrack.masks.abstract_value import Value
from hatrack.masks.check import WHY, check
from hatrack.masks.rules import RULES, Call
from hatrack.masks.rules.rule import Rule
from hatrack.masks.trace import derive
from hatrack.masks.unitmap import ON, UnitMap, Use
from oracle import dependence, garbage_findings
from zoo import ZOO, Lively, alive, tasks, unit_map

# A network for each rule that is not one of an operator alone. Where an operator stays unknown to the map, it is
# pinned and frozen and no rule can be missed: "argmax" ends in no unit, whatever is said about it.
NETS = {
    "rearrange": "by-hand", "join": "dense", "pointwise": "mlp-tanh", "binary": "written-out-norm",
    "glu": "learned-input", "spatial": "mobile", "pad": "learned-input", "reduce": "mobile", "along": "softmax",
    "convolution": "mobile", "embedding": "llama", "linear": "vit", "matmul": "by-hand", "einsum": "bare",
    "attention": "llama", "per_channel": "instance-norm", "over_units": "vit", "prelu": "conv1d",
    "weight_norm": "weight-norm", "layers": "gru", "cell": "cells", "addmm": "addmm", "position": "",
}  # fmt: skip


HARMLESS = {("careless", "pointwise")}  # this is what that rule does


class Added(nn.Module):
    """A layer by addmm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(192, 6), nn.Linear(5, 4)
        self.weight, self.shift = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(torch.addmm(self.shift, torch.tanh(self.first(x.flatten(1))), self.weight)))


def softmax() -> nn.Module:
    """Units that are mixed along their own axis."""
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.Softmax(1), nn.Linear(7, 5))


OTHERS: dict[str, Callable[[], nn.Module]] = {"addmm": Added, "softmax": softmax}


def built(name: str) -> tuple[nn.Module, Tensor]:
    if name in OTHERS:
        torch.manual_seed(0)
        return OTHERS[name](), torch.randn(3, 3, 8, 8)
    return ZOO[name].build(), ZOO[name].batch(3, seed=1)


def blind(call: Call) -> Any:
    """What a missing rule would come to if it were not handled with caution: units and parameters get lost."""
    return call.results(lambda shape: Value(shape, reached=True))


def careless(call: Call) -> Any:
    """Take every operator for one that acts entry by entry, and forget its parameters."""
    x = next((v for v in call.values if v.ids is not None and v.shape == call.shape), None)
    return blind(call) if x is None or x.ids is None else call.results(lambda shape: call.units(x.ids, x))


def wrong_about(net: nn.Module, units: UnitMap, x: Tensor) -> set[str]:
    """Say what the two oracles find, which share nothing with the check."""
    found = {finding.parameter for finding in garbage_findings(net, units, x)}
    return found | {n for n, (claimed, real) in dependence(net, units, x).items() if bool((real & ~claimed).any())}


def operators(rule: Rule) -> list[str]:
    return [name for name, known in RULES.items() if known is rule]


def test_the_table_names_every_rule() -> None:
    assert {rule.__name__ for rule in RULES.values()} == set(NETS)


@pytest.mark.parametrize("wrong", [blind, careless])
@pytest.mark.parametrize("rule", [name for name, net in NETS.items() if net])
def test_any_rule_taken_away_is_found(rule: str, wrong: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = built(NETS[rule])
    chosen = next(known for known in RULES.values() if known.__name__ == rule)
    for name in operators(chosen):
        monkeypatch.setitem(RULES, name, wrong)
    with monkeypatch.context() as unchecked:
        unchecked.setattr(trace, "check", lambda *_: None)
        leaks = wrong_about(net, derive(net, x[:1]), x)
    units = derive(net, x[:1])
    corrected = {note.where for note in units.notes if note.what == WHY}
    assert corrected or not leaks, leaks
    assert not wrong_about(net, units, x)
    assert bool(corrected) == ((wrong.__name__, rule) not in HARMLESS), "where a rule does no harm, nothing is shown"


@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
@pytest.mark.filterwarnings("ignore::hatrack.learn.capacity.CapacityWarning")
@pytest.mark.parametrize("rule", ["linear", "over_units", "attention", "join"])
def test_a_network_with_a_wrong_rule_forgets_nothing(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ZOO[NETS[rule]]
    chosen = next(known for known in RULES.values() if known.__name__ == rule)
    for name in operators(chosen):
        monkeypatch.setitem(RULES, name, blind)
    learner = Learner(
        kept.build(), Lively(), lambda p: torch.optim.AdamW(p, 0.02, weight_decay=0.1), epochs=2, batch_size=8
    )
    for task in tasks(kept, count=2):
        learner.learn(task)
    assert alive(learner)
    assert learner.verify().ok


@pytest.mark.parametrize("name", ["mlp-tanh", "mobile", "vit", "lstm", "bare", "llama", "tokens", "biased-bare"])
def test_any_single_use_that_is_wrong_is_found(name: str) -> None:
    net, right = ZOO[name].build(), unit_map(name)
    x = ZOO[name].batch(1)
    for parameter in right.uses:
        wrong = deepcopy(right)
        del wrong.uses[parameter]
        check(net, wrong, x)
        assert [note.where for note in wrong.notes if note.what == WHY] == [parameter]
        assert bool((wrong.used(torch.zeros(wrong.size))[parameter] == 1).all())


def loses_a_gate(units: UnitMap) -> None:
    units.reads.pop(0)


def open_features(units: UnitMap) -> None:
    units.features = torch.full_like(units.features, ON)


def turned(units: UnitMap) -> None:
    name = next(n for n in units.uses if len(units.shapes[n]) == 2)
    units.uses[name] = [Use(tuple(ids.flip(0) for ids in use.units)) for use in units.uses[name]]


@pytest.mark.parametrize("spoil", [loses_a_gate, open_features, turned])
def test_other_mistakes_are_found(spoil: Callable[[UnitMap], None]) -> None:
    net, units = ZOO["mlp-tanh"].build(), deepcopy(unit_map("mlp-tanh"))
    spoil(units)
    assert garbage_findings(net, units, ZOO["mlp-tanh"].batch(3)) != []
    check(net, units, ZOO["mlp-tanh"].batch(1))
    assert garbage_findings(net, units, ZOO["mlp-tanh"].batch(3)) == []
    assert units.checked


@pytest.mark.parametrize("name", ZOO)
def test_the_check_finds_nothing_where_the_map_is_right(name: str) -> None:
    units = unit_map(name)
    assert units.checked
    assert not [note for note in units.notes if note.what == WHY]


def test_a_branch_that_starts_at_zero_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scale is 0 in the network as it is: whatever goes wrong inside it shows only when it is moved."""
    net, x = ZOO["zeroed"].make(), ZOO["zeroed"].batch(2)
    units = deepcopy(unit_map("zeroed"))
    del units.uses["branch.weight"]
    assert garbage_findings(net, units, x) == []
    check(net, units, x)
    assert [note.where for note in units.notes] == ["branch.weight"]


def test_the_check_leaves_the_network_and_random_numbers_as_they_were() -> None:
    net = ZOO["vgg"].build().train()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    state = torch.get_rng_state()
    derive(net, ZOO["vgg"].batch(1))
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert net.training
    assert torch.equal(torch.get_rng_state(), state)


def test_a_network_that_draws_random_numbers_in_evaluation_is_refused() -> None:
    class Noisy(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + torch.randn(5)

    class Late(nn.Linear):
        calls = count()

        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + next(self.calls) // 3

    for net in (Noisy(4, 5), Late(4, 5)):
        with pytest.raises(HatrackError, match=rf"{type(net).__name__} gives two answers to one input in evaluation"):
            derive(net, torch.randn(1, 4))


def test_a_backward_pass_that_is_for_training_alone_is_done_without() -> None:
    """As Reformer's: noise finds what there is to find."""

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise AssertionError("training mode only")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 6)

        def forward(self, x: Tensor) -> Tensor:
            hidden = torch.relu(self.first(x))
            return self.second(hidden if torch.compiler.is_exporting() else Once.apply(hidden))

    net = Net()
    units = derive(net, torch.randn(1, 4))
    assert units.checked
    assert not units.corrected
    del units.uses["first.weight"]
    check(net, units, torch.randn(1, 4))
    assert units.corrected == ["first.weight"]


@pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
def test_what_was_found_once_holds_for_a_loaded_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ZOO["mlp-tanh"]
    with monkeypatch.context() as wrong:
        for name in operators(RULES["linear"]):
            wrong.setitem(RULES, name, blind)
        learner = Learner(kept.build(), Lively(), epochs=1, batch_size=8)
        learner.learn(tasks(kept, count=1)[0])
    learner.save(tmp_path)
    found = learner.model.units.corrected
    assert found
    loaded = hatrack.load(tmp_path, kept.build())  # its own map is right, and needs no correction
    assert set(found) <= set(loaded.model.units.corrected)
    assert all(
        bool((u == 1).all())
        for n, u in loaded.model.units.used(torch.zeros(loaded.model.units.size)).items()
        if n in found
    )
