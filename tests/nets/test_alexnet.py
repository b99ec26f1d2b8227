"""The AlexNet-like net: its size in the paper's set-up, other input sizes, refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hatrack.errors import HatrackError
from hatrack.nets import build
from hatrack.nets.model import Model

MIXTURE = (10, 100, 10, 10, 10, 43, 100, 10)  # classes of cifar10, cifar100, mnist, svhn, fashion, signs, faces, A–J


def test_seven_point_one_million_weights_with_the_eight_heads() -> None:
    model = Model(build("alexnet", (3, 32, 32)), torch.device("cpu"))
    model.meet(torch.zeros(1, 3, 32, 32))
    for t, classes in enumerate(MIXTURE):
        model.add_task(classes, torch.Generator().manual_seed(t))
    backbone = sum(p.numel() for p in model.net.parameters())
    heads = sum(p.numel() for head in model.heads for p in head.parameters())
    assert (backbone, heads, backbone + heads) == (6_503_872, 600_357, 7_104_229)


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
