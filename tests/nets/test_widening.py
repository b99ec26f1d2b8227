"""Wider networks of the zoo: cut down to their old units they are what they were, and compute it."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from math import ceil

import pytest
import torch
from torch import Tensor, nn

from hatrack.errors import HatrackError
from hatrack.masks.narrow_layers import slice_layers
from hatrack.masks.widen import fill, observing, resize
from hatrack.nets.model import Model
from hatrack.nets.widening import Plan, Widening
from oracle import gated_features
from zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")
CPU = torch.device("cpu")
# Of these no site can be widened: a view, or the network itself, knows its width.
LONG = {"resnet50", "in-place"}
FIXED = {"shuffle", "tied-bare", "tokens"}
# What a closed unit is still counted in, so that an old task needs its old width: norms and means over units.
COUNTED = {
    "encoder", "encoder-first", "encoder-tbd", "vit", "by-hand", "llama", "channels-last", "one-group", "rms-norm",
    "written-out-norm", "shifted", "squashed",
}  # fmt: skip


def model_of(name: str) -> Model:
    model = Model(ZOO[name].build(), CPU)
    model.look(ZOO[name].batch(1))
    return model


@cache
def widened(name: str) -> tuple[Model, Plan, nn.Module]:
    """Return a network's model, the plan by which all of its sites get a quarter more, and the wide network."""
    model = model_of(name)
    plan = Widening(model, 0).plan({site.name: ceil(site.size / 4) for site in model.units.sites})
    net = deepcopy(model.net)
    resize(net, {n: t.shape for n, t in plan.tensors.items()})
    own = {**dict(model.net.named_parameters()), **dict(model.net.named_buffers())}
    fill(net, {n: plan.places.spread(n, own[n].detach(), t) for n, t in plan.tensors.items()})
    with observing(net), torch.no_grad():
        net.eval()(ZOO[name].batch(1))
    return model, plan, net


def new_units(model: Model, plan: Plan) -> Tensor:
    new = torch.ones(plan.units.size, dtype=torch.bool)
    new[plan.places.units] = False
    return new


def tensors(net: nn.Module) -> dict[str, Tensor]:
    """Return a network's tensors; those of an attention as narrowed ones are called."""
    found = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    for path, layer in net.named_modules():
        if isinstance(layer, nn.MultiheadAttention) and layer.in_proj_weight is not None:
            for kind in ("weight", "bias"):
                parts = found.pop(f"{path}.in_proj_{kind}").chunk(3)
                named = zip(("query", "key", "value"), parts, strict=True)
                found |= {f"{path}.{part}_{kind}": value for part, value in named}
    return found


@pytest.mark.parametrize(  # "cross" has attention that cannot be sliced
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in ZOO if n not in FIXED | {"cross"}],
)
def test_slicing_leads_back_entry_by_entry(name: str) -> None:
    """What cuts networks down knows nothing of how this one was widened."""
    model, plan, net = widened(name)
    cut = deepcopy(net)
    slice_layers(cut, plan.units, new_units(model, plan))
    was, now = tensors(model.net), tensors(cut)
    assert set(now) >= set(was)
    assert [n for n in was if not torch.equal(was[n], now[n])] == []
    assert sum(t.numel() for t in net.parameters()) > sum(t.numel() for t in model.net.parameters())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in ZOO if n not in FIXED | COUNTED]
)
def test_old_units_alone_compute_what_they_computed(name: str) -> None:
    model, plan, net = widened(name)
    x = ZOO[name].batch(3, seed=1)
    gates = ~new_units(model, plan)
    with torch.no_grad():
        was = model.net.eval()(x)
        now = gated_features(net, plan.units, gates, x)
    for axis, (more, less) in enumerate(zip(now.shape[1:], was.shape[1:], strict=True), start=1):
        if more != less:
            stays = torch.cat([gates, gates.new_tensor([False, True])])[
                plan.units.features.movedim(axis - 1, 0).reshape(more, -1)[:, 0]
            ]
            now = now.index_select(axis, stays.nonzero().flatten())
    torch.testing.assert_close(now, was, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_cannot_be_widened_is_said_in_one_line(name: str) -> None:
    model = model_of(name)
    with pytest.raises(HatrackError, match="cannot be widened at any site asked for") as refused:
        Widening(model, 0).plan({site.name: 1 for site in model.units.sites})
    assert "\n" not in str(refused.value)


def test_places_by_hand() -> None:
    """Flattened channels, an LSTM's four gates, and parts of a concatenation get theirs where they end."""
    _, plan, _ = widened("flatten")
    assert plan.sites == {"0": 2, "3": 2}
    assert plan.places.kept["3.weight"][1].tolist() == list(range(45))  # 5 channels of 9 places, 2 more behind them
    _, plan, _ = widened("lstm")
    assert plan.sites["rnn"] == 1
    assert plan.places.kept["rnn.weight_hh_l0"][0].tolist() == [
        *range(0, 4), *range(5, 9), *range(10, 14), *range(15, 19)
    ]  # fmt: skip
    _, plan, _ = widened("dense")
    assert plan.sites["stem"] == plan.sites["grow.0.2"] == plan.sites["grow.1.2"] == 1
    assert plan.places.kept["transition.weight"][1].tolist() == [0, 1, 2, 3, 5, 6, 7, 9, 10, 11]
    _, _, net = widened("mobile")
    assert (net.depthwise.groups, net.grouped.groups, net.norm.num_features) == (10, 3, 10)
    _, _, net = widened("vit")
    assert (net.blocks[0].attention.num_heads, net.blocks[0].attention.embed_dim) == (3, 12)


def test_sites_are_widened_by_what_is_asked_and_others_stay() -> None:
    model = model_of("mlp-relu")
    plan = Widening(model, 0).plan({"3": 5})
    assert plan.sites == {"3": 5}
    assert {n: tuple(t.shape) for n, t in plan.tensors.items()} == {
        "3.weight": (12, 9), "3.bias": (12,), "5.weight": (6, 12),
    }  # fmt: skip


def test_new_entries_are_drawn_as_the_layer_draws_them() -> None:
    net = nn.Sequential(nn.Linear(300, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Linear(400, 50))
    nn.init.normal_(net[0].weight, 5.0, 1.0)
    model = Model(net, CPU)
    model.look(torch.randn(1, 300))
    plan = Widening(model, 3).plan({"0": 100})
    new = plan.tensors["0.weight"]
    assert float(new.abs().max()) <= 300**-0.5
    assert abs(float(new.std()) - (3 * 300) ** -0.5) < 2e-3
    assert float(plan.tensors["3.weight"].abs().max()) <= 500**-0.5
    assert plan.tensors["1.weight"].eq(1).all()
    assert plan.tensors["1.running_var"].eq(1).all()
    again = Widening(model, 3).plan({"0": 100}).tensors["0.weight"]
    other = Widening(model, 4).plan({"0": 100}).tensors["0.weight"]
    assert torch.equal(new, again)
    assert not torch.equal(new, other)


class ByWidth(nn.Module):
    """Attention whose heads are as many as fit into the width, as language models write it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 10)
        self.q, self.k, self.v, self.o = nn.Linear(10, 8), nn.Linear(10, 8), nn.Linear(10, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.embed(x))
        n, t, _ = x.shape
        q, k, v = (part(x).view(n, t, -1, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, -1)
        return (x + self.o(y)).mean(1)


def test_heads_that_follow_from_the_width_come_as_a_whole() -> None:
    torch.manual_seed(0)
    model = Model(ByWidth(), CPU)
    model.look(torch.randn(1, 5, 8))
    plan = Widening(model, 0).plan({site.name: ceil(site.size / 4) for site in model.units.sites})
    assert plan.sites == {"embed": 3, "q": 4, "v": 4}  # one head more, of queries and keys as of values
    assert plan.left == {}
    assert tuple(plan.tensors["o.weight"].shape) == (13, 12)


def test_an_odd_wish_is_left_alone_where_it_would_take_others_with_it() -> None:
    torch.manual_seed(0)
    model = Model(ByWidth(), CPU)
    model.look(torch.randn(1, 5, 8))
    plan = Widening(model, 0).plan({"embed": 1, "q": 1})
    assert plan.sites == {"embed": 1}
    assert set(plan.left) == {"q"}
