"""Where gates go: the gated network against formulas with gates written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hatrack.masks.trace import derive
from hatrack.masks.unitmap import UnitMap
from oracle import gated_features
from zoo import ZOO, Bare, Encoder, TiedModule, TiedParameter, unit_map


def soft(units: UnitMap, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    gates = torch.rand(units.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return gates, {s.name: gates[s.start : s.start + s.size] for s in units.sites}


def test_bare_functions_are_gated_in_their_weights() -> None:
    net, x = Bare().double(), torch.randn(3, 3, 8, 8, dtype=torch.float64)
    units = derive(net, x)
    assert {read.parameter for read in units.reads} == {"a", "b", "c", "d", "e"}
    gates, a = soft(units)
    h = F.gelu(F.conv2d(x[:, :2], net.kernel, net.shift, stride=4)) * a["kernel"].view(-1, 1, 1)
    h = torch.tanh(h.flatten(1) @ net.a.T + net.a_bias) * a["a"]
    h = torch.tanh(h @ net.b) * a["b"]
    parts = [torch.tanh(h.view(-1, 2, 4)[:, head] @ net.c[head]) for head in (0, 1)]
    h = torch.cat(parts, 1) * a["c"]
    h = torch.tanh(h @ net.d.T) * a["d"]
    expected = (h @ net.e.T) * a["e"]
    torch.testing.assert_close(gated_features(net, units, gates, x), expected)


def test_a_layer_called_again_and_again_reads_other_units_each_time() -> None:
    net, x = TiedModule().double(), torch.randn(3, 3, 8, 8, dtype=torch.float64)
    units = derive(net, x)
    gates, a = soft(units)
    h = torch.tanh(net.layer(x.flatten(1)[:, :8]))  # the first call reads the network's input: no gate
    h = torch.tanh(net.layer(h * a["layer"]))
    h = torch.tanh(net.layer(h * a["layer#2"]))
    expected = net.last(h * a["layer#3"]) * a["last"]
    torch.testing.assert_close(gated_features(net, units, gates, x), expected)


def test_attention_is_gated_as_if_every_unit_were_multiplied() -> None:
    net = Encoder(first=True).double().eval()
    net.encoder.layers = net.encoder.layers[:1]
    x = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    units = derive(net, x)
    gates, a = soft(units)
    stream, packed, hidden = a["patches"], a["encoder.layers.0.self_attn"], a["encoder.layers.0.linear1"]
    layer = net.encoder.layers[0]
    h = net.patches(x).flatten(2).transpose(1, 2)
    y = layer.norm1(h * stream) * stream
    q, k, v = F.linear(y, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias).chunk(3, -1)
    q, k, v = q * packed[:8], k * packed[:8], v * packed[8:]
    heads = []
    for part in (slice(0, 4), slice(4, 8)):
        scores = torch.softmax(q[..., part] @ k[..., part].transpose(1, 2) / 2, -1)
        heads.append(scores @ v[..., part])
    h = h + F.linear(torch.cat(heads, -1), layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias)
    y = torch.relu(layer.linear1(layer.norm2(h * stream) * stream)) * hidden
    expected = (h + layer.linear2(y)).mean(1) * stream
    torch.testing.assert_close(gated_features(net, units, gates, x), expected)


def test_no_statistic_of_a_norm_depends_on_a_closed_unit() -> None:
    for name in ("group-norm", "one-group", "instance-norm", "channels-last", "rms-norm", "written-out-norm"):
        kept = ZOO[name]
        net, units = kept.build().eval(), unit_map(name)
        gates = torch.ones(units.size, dtype=torch.bool)
        gates[1] = False
        x = kept.batch(4, seed=5)
        with torch.no_grad():
            before = gated_features(net, units, gates, x)
            net[0].weight[1] *= 1000.0
            net[0].bias[1] -= 1000.0
            assert torch.equal(gated_features(net, units, gates, x), before), name


def test_not_even_nan_passes_a_closed_gate_in_front_of_a_module() -> None:
    for name in ("mlp-relu", "alexnet", "vgg", "group-norm", "rms-norm", "dense"):
        kept = ZOO[name]
        net, units = kept.build().eval(), unit_map(name)
        gates = torch.ones(units.size, dtype=torch.bool)
        gates[1] = False
        writer = net.get_submodule(units.sites[0].name)
        with torch.no_grad():
            before = gated_features(net, units, gates, kept.batch(4))
            writer.weight[1] = torch.nan
            writer.bias[1] = torch.inf
            assert torch.equal(gated_features(net, units, gates, kept.batch(4)), before), name


def test_a_parameter_with_one_value_cannot_be_gated_for_one_of_two_uses() -> None:
    """The table is looked up and is also a bare output layer: gating it there would gate the look-up as well."""
    net = TiedParameter(bare=True)
    units = derive(net, torch.zeros(1, 4, dtype=torch.long))
    assert units.reads[0].module == "hidden"
    assert len(units.reads) == 1
    assert [note.where for note in units.notes] == ["embed.weight"]
    assert "hidden" not in [site.name for site in units.sites]


def test_reads_of_one_weight_at_two_places_are_made_one() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 5), nn.Linear(4, 5)
            self.weight = nn.Parameter(torch.randn(3, 5))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(torch.tanh(self.a(x)), self.weight) * F.linear(torch.tanh(self.b(x)), self.weight)

    units = derive(Net(), torch.randn(1, 4))
    assert [(s.name, s.size, s.writers) for s in units.sites] == [("a", 5, ("a", "b")), ("weight", 3, ("weight",))]
    assert not units.notes


@pytest.mark.parametrize("kind", ["keyword", "several tensors", "varying"])
def test_a_module_that_no_hook_reaches_is_gated_in_its_weight(kind: str) -> None:
    class Add(nn.Linear):
        def forward(self, input: Tensor, other: Tensor | None = None) -> Tensor:
            return super().forward(input) if other is None else super().forward(input) + other

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 5), Add(5, 5)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.a(x))
            if kind == "keyword":
                return self.b(input=y)
            if kind == "several tensors":
                return self.b(y, x[:, :1])
            return self.b(torch.tanh(self.b(y)), x[:, :1])

    net = Net()
    x = torch.randn(3, 4)
    units = derive(net, x)
    assert {read.parameter for read in units.reads} == {"b.weight"}
    gates, a = soft(units)
    net.double()
    y = torch.tanh(net.a(x.double())) * a["a"]
    extra = x[:, :1].double() if kind != "keyword" else 0
    if kind == "varying":  # one weight for two calls, so what it reads is one site
        y = torch.tanh(net.b(y)) * a["a"]
    expected = (net.b(y) + extra) * gates[units.features]
    torch.testing.assert_close(gated_features(net, units, gates, x.double()), expected)
