"""The AlexNet-like net: its size in the paper's set-up, other input sizes, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hatrack.errors import HatrackError
from hatrack.nets import build
from hatrack.nets.model import Model
from hatrack.targets import Classification

MIXTURE = (10, 100, 10, 10, 10, 43, 100, 10)  # classes of cifar10, cifar100, mnist, svhn, fashion, signs, faces, A–J


def sizes(**options: float) -> tuple[int, int, int]:
    """Parameters of the network, of the heads of the eight sets, and of both."""
    model = Model(build("alexnet", (3, 32, 32), **options), torch.device("cpu"))
    model.meet(torch.zeros(1, 3, 32, 32))
    for t, classes in enumerate(MIXTURE):
        model.add_task(Classification(classes), torch.Generator().manual_seed(t))
    backbone = sum(p.numel() for p in model.net.parameters())
    heads = sum(p.numel() for head in model.heads for p in head.parameters())
    return backbone, heads, backbone + heads


def test_seven_point_one_million_weights_with_the_eight_heads() -> None:
    assert sizes() == (6_503_872, 600_357, 7_104_229)


def test_sixteen_branches_of_pathnets_modules_have_as_many_weights_as_its_published_code() -> None:
    assert sizes(part=0.258, branches=16)[2] == 7_092_261


@pytest.mark.parametrize(
    ("scale", "units"), [(0.139625, [8, 17, 35, 285, 285]), (0.258, [16, 33, 66, 528, 528]), (0.01, [1, 1, 2, 20, 20])]
)
def test_every_layer_is_scaled_and_keeps_a_unit(scale: float, units: list[int]) -> None:
    for options in ({"width_scale": scale}, {"part": scale}, {"width_scale": scale * 2, "part": 0.5}):
        net = build("alexnet", (3, 32, 32), **options)
        assert [len(m.weight) for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)] == units


def test_branches_are_networks_layers_that_are_summed() -> None:
    torch.manual_seed(0)
    net = build("alexnet", (3, 32, 32), width_scale=0.05, branches=3).double().eval()
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = x
    for name in ("conv1", "conv2", "conv3", "fc1", "fc2"):
        layer, total = net.get_submodule(name), torch.zeros((), dtype=torch.float64)
        for weight, bias in zip(layer.weight.chunk(3), layer.bias.chunk(3), strict=True):
            if isinstance(layer, nn.Conv2d):
                branch = nn.functional.max_pool2d(nn.functional.conv2d(expected, weight, bias).relu(), 2)
            else:
                branch = nn.functional.linear(expected.flatten(1), weight, bias).relu()
            total = total + branch
        expected = total
    torch.testing.assert_close(net(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{"width_scale": 0.0}, {"part": 0.0}, {"branches": 0}])
def test_sizes_that_make_no_network_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(HatrackError, match="width_scale above 0, a part above 0 and at least 1 branch"):
        build("alexnet", (3, 32, 32), **options)


@pytest.mark.parametrize(
    ("shape", "kernels"), [((3, 32, 32), (4, 3, 2)), ((1, 28, 28), (3, 2, 2)), ((3, 64, 64), (8, 6, 2))]
)
def test_kernels_follow_the_side(shape: tuple[int, int, int], kernels: tuple[int, ...]) -> None:
    net = build("alexnet", shape, width=16)
    assert tuple(m.kernel_size[0] for m in net.modules() if isinstance(m, nn.Conv2d)) == kernels
    assert net(torch.zeros(2, *shape)).shape == (2, 16)


@pytest.mark.parametrize("shape", [(3, 16, 16), (3, 32, 24), (10,)])
def test_other_inputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(HatrackError, match="alexnet takes square pictures"):
        build("alexnet", shape)


def test_xavier_uniform_weights_and_zero_biases() -> None:
    torch.manual_seed(0)
    net = build("alexnet", (3, 32, 32))
    bound = (6 / (2048 + 2048)) ** 0.5
    weight = net.fc2.weight.detach()
    assert float(weight.abs().max()) <= bound
    assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.01)
    assert float(net.fc2.bias.detach().abs().max()) == 0


def test_a_branch_starts_as_a_layer_of_its_own_would() -> None:
    torch.manual_seed(0)
    weight = build("alexnet", (3, 32, 32), width_scale=0.25, branches=4).fc2.weight.detach()
    bound = (6 / (512 + 512)) ** 0.5  # not of the 4 · 512 rows
    assert bound * 0.99 < float(weight.abs().max()) <= bound
