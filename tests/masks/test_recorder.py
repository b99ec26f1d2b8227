"""Which units every parameter entry serves, where layouts are easy to get wrong: by plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hatrack.masks.trace import derive
from hatrack.masks.unitmap import UnitMap


def used(units: UnitMap, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return random gates by site and what follows for every parameter."""
    a = np.random.default_rng(seed).uniform(size=units.size)
    gates = {s.name: a[s.start : s.start + s.size] for s in units.sites}
    return gates, {name: value.numpy() for name, value in units.used(torch.from_numpy(a)).items()}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_convolutions(groups: int, transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    net = nn.Sequential(nn.Conv2d(3, 4, 1), kind(4, 8, 3, groups=groups, padding=1), nn.AdaptiveAvgPool2d(1))
    gates, found = used(derive(net, torch.randn(1, 3, 5, 5)))
    below, above = gates["0"], gates["1"]
    weight = found["1.weight"]
    for out in range(8):
        group = out // (8 // groups)
        for k in range(4 // groups):
            source = group * (4 // groups) + k
            entry = weight[source, out - group * (8 // groups)] if transposed else weight[out, k]
            np.testing.assert_array_equal(entry, np.full((3, 3), min(above[out], below[source])))
    np.testing.assert_array_equal(found["1.bias"], above)


@pytest.mark.parametrize("convolution", [False, True])
def test_ranks_beside_frozen_weights_are_the_units(convolution: bool) -> None:
    """LoRA: base(x) + scale·B(A(dropout(x))), the base frozen; entries of A and B serve their rank alone."""

    class Lora(nn.Module):
        def __init__(self, inputs: int, outputs: int, rank: int) -> None:
            super().__init__()
            kind = (lambda *sizes: nn.Conv1d(*sizes, 1)) if convolution else nn.Linear
            self.base = kind(inputs, outputs).requires_grad_(False)
            self.a, self.b = kind(inputs, rank), kind(rank, outputs)
            self.b.bias.requires_grad_(False)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + 2.0 * self.b(self.a(self.dropout(x)))

    net = nn.Sequential(Lora(5, 4, 2), nn.ReLU(), Lora(4, 3, 6))
    units = derive(net, torch.randn(1, 5, 7) if convolution else torch.randn(1, 5))
    gates, found = used(units)
    assert {name: len(ranks) for name, ranks in gates.items()} == {"0.a": 2, "2.a": 6}
    for layer in ("0", "2"):
        for rank, gate in enumerate(gates[f"{layer}.a"]):
            np.testing.assert_array_equal(
                found[f"{layer}.a.weight"][rank], np.full_like(found[f"{layer}.a.weight"][rank], gate)
            )
            assert found[f"{layer}.a.bias"][rank] == gate
            column = found[f"{layer}.b.weight"][:, rank]
            np.testing.assert_array_equal(column, np.full_like(column, gate))
        for name in ("base.weight", "base.bias", "b.bias"):
            assert (found[f"{layer}.{name}"] == 1).all()


@pytest.mark.parametrize("how", ["index", "index_select", "gather"])
@pytest.mark.parametrize("over_units", [False, True])
def test_a_place_that_the_data_say_has_the_units_of_every_place(how: str, over_units: bool) -> None:
    """The last word of a text; where data say which units are taken instead, nobody knows which they are."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.first, self.second = nn.Embedding(9, 4), nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(self.words(x)))  # samples, words, units
            place = x.sum(1) % 3
            rows, where = torch.arange(len(x)), place.view(-1, 1, 1)
            if over_units:
                return self.second(
                    {
                        "index": lambda: h[rows, :, place],
                        "index_select": lambda: h.index_select(2, place)[..., 0],
                        "gather": lambda: h.gather(2, where.expand(-1, 7, 1))[..., 0],
                    }[how]()[:, :5]
                )
            return self.second(
                {
                    "index": lambda: h[rows, place],
                    "index_select": lambda: h.index_select(1, place)[:, 0],
                    "gather": lambda: h.gather(1, where.expand(-1, 1, 5))[:, 0],
                }[how]()
            )

    units = derive(Net(), torch.randint(9, (1, 7)))
    gates, found = used(units)
    first = np.ones(5) if over_units else gates["first"]
    assert ("first" in gates) != over_units
    for unit in range(5):
        for out in range(3):
            assert found["second.weight"][out, unit] == min(gates["second"][out], first[unit])
        for word in range(4):
            assert found["first.weight"][unit, word] == min(first[unit], gates["words"][word])


def test_concatenation_keeps_parts_apart() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(5, 2), nn.Linear(5, 3), nn.Linear(7, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.cat([self.b(x), self.a(x), self.a(x)], 1))

    units = derive(Net(), torch.randn(1, 5))
    gates, found = used(units)
    below = [*gates["b"], *gates["a"], *gates["a#2"]]  # a layer that is called twice writes two sites
    for i in range(4):
        for j in range(7):
            assert found["c.weight"][i, j] == min(gates["c"][i], below[j])
    for j in range(5):  # either call may need a weight of the shared layer
        np.testing.assert_array_equal(found["a.weight"][:, j], np.maximum(gates["a"], gates["a#2"]))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_packs_queries_keys_and_values_by_heads(need_weights: bool, batch_first: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 6)
            self.attend = nn.MultiheadAttention(6, 3, batch_first=batch_first)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            if not batch_first:
                y = y.transpose(0, 1)
            return self.attend(y, y, y, need_weights=need_weights)[0].mean(1 if batch_first else 0)

    gates, found = used(derive(Net(), torch.randn(1, 4, 6)))
    below = gates["first"]
    product, value = gates["attend"][:6], gates["attend"][6:]  # a query and its key are one unit; values are apart
    rows = [*product, *product, *value]
    for i in range(18):
        assert found["attend.in_proj_bias"][i] == rows[i]
        for j in range(6):
            assert found["attend.in_proj_weight"][i, j] == min(rows[i], below[j])
    for i in range(6):
        for j in range(6):
            assert found["attend.out_proj.weight"][i, j] == min(gates["attend.out_proj"][i], value[j])


def test_a_class_token_and_positions_belong_to_the_stream() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 5)
            self.token, self.positions = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(1, 7, 4))
            self.norm = nn.LayerNorm(4)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.cat([self.token.expand(len(x), 1, 4), self.first(x)], 1) + self.positions
            return self.second(self.norm(x))[:, 0]

    gates, found = used(derive(Net(), torch.randn(1, 6, 3)))
    stream = gates["first"]
    for d in range(4):
        assert found["token"][0, 0, d] == stream[d]
        assert found["first.bias"][d] == stream[d]
        assert found["norm.weight"][d] == stream[d]
        for t in range(7):
            assert found["positions"][0, t, d] == stream[d]


def test_a_recurrent_unit_owns_its_row_in_every_block() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rnn = nn.Linear(3, 2), nn.LSTM(2, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(self.first(x))[1][0][0]

    gates, found = used(derive(Net(), torch.randn(1, 4, 3)))
    h, below = gates["rnn"], gates["first"]
    for block in range(4):
        for i in range(3):
            row = 3 * block + i
            assert found["rnn.bias_hh_l0"][row] == h[i]
            for j in range(2):
                assert found["rnn.weight_ih_l0"][row, j] == min(h[i], below[j])
            for j in range(3):
                assert found["rnn.weight_hh_l0"][row, j] == min(h[i], h[j])


def test_a_part_of_a_parameter() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.table = nn.Linear(3, 4), nn.Parameter(torch.randn(6, 8))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(self.first(x), self.table[1:4, 2:6])

    gates, found = used(derive(Net(), torch.randn(1, 3)))
    expected = np.zeros((6, 8))
    for i in range(3):
        for j in range(4):
            expected[1 + i, 2 + j] = min(gates["table"][i], gates["first"][j])
    np.testing.assert_array_equal(found["table"], expected)
