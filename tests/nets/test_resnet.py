"""Residual networks: their sizes, shapes and initialisation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hatrack.errors import HatrackError
from hatrack.nets import build, options


@pytest.mark.parametrize(
    ("name", "parameters", "features"), [("resnet18", 11_168_832, 512), ("resnet50", 23_500_352, 2048)]
)
def test_size(name: str, parameters: int, features: int) -> None:
    net = build(name, (3, 32, 32))
    assert sum(p.numel() for p in net.parameters()) == parameters
    with torch.no_grad():
        assert net.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, features)


def test_parameters_of_a_basic_block_counted_by_hand() -> None:
    net = build("resnet18", (1, 16, 16), width=8)
    first = 2 * (8 * 8 * 9) + 2 * (2 * 8)  # two 3×3 convolutions, two norms
    widened = 8 * 16 * 9 + 16 * 16 * 9 + 2 * (2 * 16) + (8 * 16 + 2 * 16)  # and a projection with its norm
    assert sum(p.numel() for p in net.stages[0][0].parameters()) == first
    assert sum(p.numel() for p in net.stages[1][0].parameters()) == widened
    assert isinstance(net.stages[1][1].shortcut, nn.Identity)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_dropout_stands_before_the_last_convolution_of_every_block(name: str) -> None:
    net, plain = build(name, (3, 32, 32), width=4, dropout=0.3), build(name, (3, 32, 32), width=4)
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.3] * sum(map(len, net.stages))
    assert not any(isinstance(m, nn.Dropout) for m in plain.modules())
    block, given, taken = net.stages[0][0], [], []
    last, before = (block.conv2, block.norm1) if name == "resnet18" else (block.conv3, block.norm2)
    before.register_forward_hook(lambda _, args, out: given.append(out.relu()))
    last.register_forward_pre_hook(lambda _, args: taken.append(args[0]))
    block(torch.rand(2, 4, 8, 8))
    open_ = given[0] > 0
    kept = taken[0][open_] != 0
    assert 0.5 < float(kept.float().mean()) < 0.9
    torch.testing.assert_close(taken[0][open_][kept], given[0][open_][kept] / 0.7)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_four_stages_halve_the_picture_three_times(name: str) -> None:
    net = build(name, (3, 32, 32), width=4).eval()
    x, sides = net.relu(net.norm(net.conv(torch.zeros(1, 3, 32, 32)))), []
    for stage in net.stages:
        x = stage(x)
        sides.append(x.shape[2])
    assert sides == [32, 16, 8, 4]


def test_widths_scale_and_other_sides_work() -> None:
    assert options("resnet18") == {"width": 64, "dropout": 0.0, "init": "he"}
    assert build("resnet18", (1, 28, 20), width=4).eval()(torch.zeros(2, 1, 28, 20)).shape == (2, 32)


def test_convolutions_start_with_he_s_variance() -> None:
    torch.manual_seed(0)
    conv = build("resnet18", (3, 32, 32)).stages[3][1].conv2
    assert float(conv.weight.detach().std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize("shape", [(3, 4, 4), (64,)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(HatrackError, match="a resnet takes pictures"):
        build("resnet18", shape)
