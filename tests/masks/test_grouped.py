"""Convolutions in groups, cut: by a table, and against the whole one with zeros."""

from __future__ import annotations

import torch
from torch import nn

from hatrack.masks.grouped import Grouped, balanced, coupled, grouped, recurrent
from hatrack.masks.unitmap import Site, UnitMap, Use

# Two groups: units 0–1 and 2–3 are read, 4–6 and 7–9 are written.
READ, WRITTEN = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[4, 5, 6], [7, 8, 9]])


def gone(*units: int) -> torch.Tensor:
    marked = torch.zeros(10, dtype=torch.bool)
    marked[list(units)] = True
    return marked


def test_groups_keep_equal_numbers() -> None:
    layer = Grouped("weight", WRITTEN, READ)
    cases = {
        (0, 2): (0, 2),  # one input of each
        (0,): (),  # of one group alone
        (4, 5, 7): (5, 7),  # two outputs of the one, one of the other: the first of the two stays
        (0, 1, 4, 5, 6): (0, 1, 4, 5, 6),  # a whole group
        (0, 1): (),  # all inputs of a group, whose outputs are open
    }
    for asked, left in cases.items():
        assert balanced([layer], gone(*asked)).nonzero().flatten().tolist() == list(left), asked


def test_what_is_cut_computes_as_the_whole_with_zeros() -> None:
    torch.manual_seed(0)
    for away in (gone(0, 3, 5, 9), gone(2, 3, 7, 8, 9)):
        conv = nn.Conv2d(4, 6, 3, groups=2, bias=False)
        weight, groups = Grouped("weight", WRITTEN, READ).cut(conv.weight.data, away)
        x = torch.randn(2, 4, 5, 5)
        want = conv(torch.where(away[:4, None, None], 0.0, x))[:, ~away[4:]]
        got = nn.functional.conv2d(x[:, ~away[:4]], weight, groups=groups)
        torch.testing.assert_close(got, want)


def test_are_found_with_the_units_of_rows_and_columns() -> None:
    net = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose2d(6, 4, 3, groups=2))
    read = READ.repeat_interleave(3, 0)[:, :, None, None]
    uses = {
        "0.weight": [Use((WRITTEN.flatten()[:, None, None, None], read))],
        "1.weight": [Use((read, WRITTEN.flatten()[:, None, None, None]))],  # written, read
    }
    shapes = {name: p.shape for name, p in net.named_parameters()}
    units = UnitMap(10, [], uses, shapes, [], torch.zeros(1, dtype=torch.long))
    straight, turned = grouped(net, units)
    assert torch.equal(straight.rows, WRITTEN)
    assert torch.equal(straight.columns, READ)
    assert torch.equal(turned.rows, WRITTEN)
    assert torch.equal(turned.columns, READ)


def test_sites_that_meet_in_one_are_cut_together() -> None:
    sites = [Site(str(i), start, size, (), ()) for i, (start, size) in enumerate([(0, 4), (4, 6), (10, 3)])]
    together = coupled([Grouped("weight", WRITTEN, READ)], UnitMap(13, sites, {}, {}, [], torch.zeros(1)), sites)
    assert sorted([site.name for site in part] for part in together) == [["0", "1"], ["2"]]


def test_layers_and_directions_of_an_rnn_keep_equal_numbers() -> None:
    net = nn.Sequential(nn.GRU(3, 2, num_layers=2), nn.LSTM(2, 2), nn.LSTM(2, 2, bidirectional=True, proj_size=1))
    names = {"0.weight_hh_l0": [0, 1], "0.weight_hh_l1": [2, 3], "1.weight_hh_l0": [4, 5]}
    uses = {name: [Use((torch.zeros(1, 1), torch.tensor([states])))] for name, states in names.items()}
    units = UnitMap(10, [], uses, {}, [], torch.zeros(1, dtype=torch.long))
    (found,) = recurrent(net, units)
    assert found.rows.tolist() == [[0, 1], [2, 3]]
    assert balanced([found], gone(0, 4)).nonzero().flatten().tolist() == [4]
    assert balanced([found], gone(0, 3)).nonzero().flatten().tolist() == [0, 3]
    assert len(coupled([found], units, [Site("a", 0, 2, (), ()), Site("b", 2, 2, (), ())])) == 1
