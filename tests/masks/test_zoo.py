"""The unit map of every network in the zoo against an oracle that only changes numbers and asks autograd."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from hatrack.masks.unitmap import UnitMap, Use
from oracle import dependence, garbage_findings, gated_features, random_gates, same_bits
from zoo import ZOO, unit_map


def mapped(name: str) -> tuple[nn.Module, UnitMap]:
    return ZOO[name].build(), unit_map(name)


@pytest.mark.parametrize("name", ZOO)
def test_entries_that_no_open_unit_uses_may_hold_anything(name: str) -> None:
    net, units = mapped(name)
    assert garbage_findings(net, units, ZOO[name].batch(3, seed=1)) == []


@pytest.mark.parametrize("name", ZOO)
def test_autograd_agrees_on_what_matters(name: str) -> None:
    """No entry that really matters is called unused; and no more is called used than the network makes it."""
    net, units = mapped(name)
    table = dependence(net, units, ZOO[name].batch(3, seed=1))
    leaks = {n: int((real & ~claimed).sum()) for n, (claimed, real) in table.items() if bool((real & ~claimed).any())}
    assert leaks == {}
    claimed = sum(int(c.sum()) for c, _ in table.values())
    real = sum(int((c & r).sum()) for c, r in table.values())
    assert real >= ZOO[name].tight * claimed
    assert claimed < sum(p.numel() for p in net.parameters()), "the check means nothing if everything is used"


@pytest.mark.parametrize("name", ZOO)
def test_what_is_handled_with_caution_is_named_and_nothing_else(name: str) -> None:
    net, units = mapped(name)
    kept = ZOO[name]
    assert tuple(dict.fromkeys(note.where for note in units.notes)) == kept.notes
    stays = [n for n, used in units.used(torch.zeros(units.size)).items() if bool((used > 0).all())]
    assert tuple(stays) == kept.frozen
    assert bool(units.norms) == kept.norms
    assert set(units.uses) <= set(units.shapes) == set(dict(net.named_parameters()))


@pytest.mark.parametrize("name", ZOO)
def test_a_sample_gets_the_same_features_in_a_batch_of_any_size(name: str) -> None:
    """Nothing of the two samples that the network was traced with is left in the map."""
    net, units = mapped(name)
    net.eval()
    x, gates = ZOO[name].batch(5, seed=2), random_gates(units, 0.6, seed=3)
    with torch.no_grad():
        whole = gated_features(net, units, gates, x)
        alone = torch.cat([gated_features(net, units, gates, x[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(alone, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ZOO)
def test_open_gates_leave_the_network_as_it_is(name: str) -> None:
    net, units = mapped(name)
    net.eval()
    x = ZOO[name].batch(3, seed=2)
    with torch.no_grad():
        plain, gated = net(x), gated_features(net, units, torch.ones(units.size, dtype=torch.bool), x)
    torch.testing.assert_close(gated, plain, rtol=1e-4, atol=1e-5)


def test_the_oracle_finds_a_map_that_is_wrong() -> None:
    net, units = mapped("mlp-tanh")
    x = ZOO["mlp-tanh"].batch(3, seed=1)
    wrong = deepcopy(units)
    wrong.uses["3.bias"] = [Use(tuple(ids.flip(0) for ids in use.units)) for use in units.uses["3.bias"]]
    assert [finding.parameter for finding in garbage_findings(net, wrong, x)][:1] == ["3.bias"]
    wrong = deepcopy(units)
    wrong.reads.pop(0)
    assert garbage_findings(net, wrong, x) != []


def test_bits_are_compared_not_values() -> None:
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
