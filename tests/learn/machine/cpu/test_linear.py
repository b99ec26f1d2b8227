"""Our own linear layers: against float64, beside torch's, and left to torch wherever they are not for us."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hatrack.learn.machine.cpu import linear as ours
from hatrack.learn.machine.cpu.mode import FastOnCpu

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch was built without oneDNN"
)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Take every product of ours, whatever the processor; return what went through."""
    shapes: list[tuple[int, ...]] = []
    real = ours._product

    def noted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append((*x.shape, len(weight)))
        return real(x, weight, bias)

    monkeypatch.setattr(ours, "_pays", lambda: True)
    monkeypatch.setattr(ours, "WORTH", 1)
    monkeypatch.setattr(ours, "_product", noted)
    return shapes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 12), (3, 5, 12), (2, 3, 4, 12)])
def test_values_and_gradients_are_those_of_float64(
    shape: tuple[int, ...], bias: bool, used: list[tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    layer = nn.Linear(12, 9, bias=bias)
    g = torch.randn(*shape[:-1], 9)
    with FastOnCpu():
        y = layer(x)
    y.backward(g)
    x64, w64, g64 = (t.detach().double().numpy() for t in (x, layer.weight, g))
    flat, g_flat = x64.reshape(-1, 12), g64.reshape(-1, 9)
    b64 = layer.bias.detach().double().numpy() if bias else 0
    np.testing.assert_allclose(y.detach().numpy(), x64 @ w64.T + b64, atol=1e-5)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), g64 @ w64, atol=1e-5)
    np.testing.assert_allclose(layer.weight.grad.numpy(), g_flat.T @ flat, atol=1e-4)
    if bias:
        np.testing.assert_allclose(layer.bias.grad.numpy(), g_flat.sum(0), atol=1e-4)
    assert len(used) == 3


def test_what_nobody_asks_for_is_not_computed(used: list[tuple[int, ...]]) -> None:
    x, layer = torch.randn(6, 4), nn.Linear(4, 5)
    with FastOnCpu():
        layer(x).sum().backward()  # no gradient of x
    assert len(used) == 2
    used.clear()
    layer.weight.requires_grad_(False)
    with FastOnCpu():
        layer(x).sum().backward()
    assert len(used) == 1


def test_it_can_be_differentiated_twice(used: list[tuple[int, ...]]) -> None:
    """The gradient of a gradient's size, as a penalty inside a network has it."""
    torch.manual_seed(0)
    x = torch.randn(5, 4, requires_grad=True)
    layer = nn.Linear(4, 3)
    found = []
    for mode in (FastOnCpu(), torch.enable_grad()):
        with mode:
            (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, layer.weight]))
    assert used
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.linear(torch.randn(4, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)),
        lambda: F.linear(torch.randn(6), torch.randn(3, 6)),
        lambda: F.linear(torch.randn(4, 6), torch.randn(6)),
        lambda: F.linear(torch.randn(4, 6), torch.randn(3, 6).to_sparse()),
        lambda: torch.vmap(F.linear, in_dims=(0, None))(torch.randn(5, 4, 6), torch.randn(3, 6)),
    ],
)
def test_what_is_not_ordinary_is_left_to_torch(call: Callable[[], Tensor], used: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    expected = call()
    torch.manual_seed(0)
    with FastOnCpu():
        assert torch.equal(call(), expected)
    assert used == []


def test_autocast_is_left_to_torch(used: list[tuple[int, ...]]) -> None:
    layer = nn.Linear(64, 64)
    with FastOnCpu(), torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(8, 64)).dtype == torch.bfloat16
    assert used == []


def test_shapes_that_do_not_fit_are_told_as_torch_tells_them(used: list[tuple[int, ...]]) -> None:
    with FastOnCpu(), pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        nn.Linear(6, 3)(torch.randn(4, 5))


@pytest.mark.parametrize(
    ("name", "pays"),
    [
        ("AVX512, AuthenticAMD, AMD EPYC", True),
        ("AVX512, GenuineIntel, Xeon", False),
        ("AVX2, AuthenticAMD, AMD EPYC", False),
        ("NEON, 0x41", False),
    ],
)
def test_only_where_it_was_measured_to_pay(name: str, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "processor", lambda: name)
    ours._pays.cache_clear()
    try:
        assert ours._pays() is pays
    finally:
        ours._pays.cache_clear()
