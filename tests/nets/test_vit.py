"""The vision transformer: its size by a count of its parts, its tokens, its refusals."""

from __future__ import annotations

import pytest
import torch

from hatrack.errors import HatrackError
from hatrack.nets import build


def count(channels: int, side: int, patch: int, width: int, depth: int, hidden: int) -> int:
    patches = channels * patch**2 * width + width
    tokens = width + (1 + (side // patch) ** 2) * width
    attention = 3 * (width * width + width) + width * width + width
    perceptron = width * hidden + hidden + hidden * width + width
    return patches + tokens + depth * (attention + perceptron + 4 * width) + 2 * width


@pytest.mark.parametrize(("patch", "width", "depth", "heads", "hidden"), [(4, 192, 6, 3, 768), (8, 16, 2, 4, 20)])
def test_size(patch: int, width: int, depth: int, heads: int, hidden: int) -> None:
    net = build("vit", (3, 32, 32), patch=patch, width=width, depth=depth, heads=heads, hidden=hidden)
    assert sum(p.numel() for p in net.parameters()) == count(3, 32, patch, width, depth, hidden)
    with torch.no_grad():
        assert net.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, width)


def test_default_size() -> None:
    assert sum(p.numel() for p in build("vit", (3, 32, 32)).parameters()) == 2_691_648


def test_the_class_token_sees_every_patch_and_its_place() -> None:
    torch.manual_seed(0)
    net = build("vit", (1, 8, 8), patch=4, width=8, depth=1, heads=2, hidden=8).eval()
    x = torch.randn(1, 1, 8, 8, requires_grad=True)
    (net(x) * torch.linspace(-1, 2, 8)).sum().backward()  # the plain sum is constant behind a layer norm
    assert bool((x.grad != 0).all())
    swapped = torch.cat([x[:, :, :, 4:], x[:, :, :, :4]], 3)
    assert not torch.allclose(net(x), net(swapped))


def test_weights_and_positions_start_small() -> None:
    torch.manual_seed(0)
    net = build("vit", (3, 32, 32))
    for tensor in (net.positions, net.blocks[0].fc1.weight, net.patches.weight):
        assert float(tensor.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert float(net.blocks[0].fc1.bias.detach().abs().max()) == 0


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((3, 30, 32), {}, "patches of 4×4 cover exactly.* give sides that 4 divides"),
        ((10,), {}, "vit takes pictures"),
        ((3, 32, 32), {"heads": 5}, "multiple of heads 5"),
    ],
)
def test_refusals(shape: tuple[int, ...], options: dict[str, int], words: str) -> None:
    with pytest.raises(HatrackError, match=words):
        build("vit", shape, **options)
