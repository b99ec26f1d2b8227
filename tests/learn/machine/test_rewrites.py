"""Rewritten products against loops in float64, and only where they are meant to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from hatrack.learn.machine.rewrites import REWRITES


def traced_gradients(net: nn.Module, x: torch.Tensor) -> tuple[list[torch.Tensor], list[str]]:
    """Return the gradients of Σ y³/3 from rewritten code, and the operations left in it."""
    parameters = list(net.parameters())

    def evaluate(x: torch.Tensor) -> list[torch.Tensor]:
        loss = net(x).pow(3).sum() / 3
        return list(torch.autograd.grad(loss, parameters))

    code = make_fx(evaluate, decomposition_table=REWRITES)(x)
    with torch.no_grad():
        made = code(x)
    return made, [str(node.target) for node in code.graph.nodes]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_a_first_convolution_is_a_product_of_patches(stride: int, bias: bool) -> None:
    torch.manual_seed(0)
    net = nn.Conv2d(3, 5, (4, 3), stride=stride, bias=bias, dtype=torch.float64)
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64)
    gradients, operations = traced_gradients(net, x)
    assert not any("convolution" in name for name in operations)
    w, b = net.weight.detach().numpy(), net.bias.detach().numpy() if net.bias is not None else np.zeros(5)
    for_weight, for_bias = np.zeros_like(w), np.zeros(5)
    for n in range(2):
        for i in range(0, 9 - 4 + 1, stride):
            for j in range(0, 8 - 3 + 1, stride):
                patch = x[n, :, i : i + 4, j : j + 3].numpy()
                y = (w * patch).sum((1, 2, 3)) + b
                for_weight += (y**2)[:, None, None, None] * patch
                for_bias += y**2
    np.testing.assert_allclose(gradients[0].numpy(), for_weight, rtol=1e-9)
    if bias:
        np.testing.assert_allclose(gradients[1].numpy(), for_bias, rtol=1e-9)


def test_other_convolutions_are_left_alone() -> None:
    torch.manual_seed(0)
    deep = nn.Sequential(nn.Conv2d(8, 4, 3), nn.Flatten())
    padded = nn.Conv2d(3, 4, 3, padding=1)
    inner = nn.Sequential(nn.Conv2d(8, 2, 1), nn.Conv2d(2, 3, 2))
    for net, channels in ((deep, 8), (padded, 3), (inner, 8)):
        _, operations = traced_gradients(net, torch.randn(2, channels, 6, 6))
        assert "aten.convolution_backward.default" in operations


def test_a_convolution_within_the_network_has_the_gradient_it_had() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 2, 1), nn.Conv2d(2, 3, 2)).double()
    x = torch.randn(2, 8, 6, 6, dtype=torch.float64)
    expected = torch.autograd.grad(net(x).pow(3).sum() / 3, list(net.parameters()))
    for made, right in zip(traced_gradients(net, x)[0], expected, strict=True):
        torch.testing.assert_close(made, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("inputs", "rewritten"), [(600, True), (100, False)])
def test_a_head_is_a_plain_sum(inputs: int, rewritten: bool) -> None:
    torch.manual_seed(0)
    net = nn.Linear(inputs, 10, dtype=torch.float64)
    x = torch.randn(4, inputs, dtype=torch.float64)
    gradients, operations = traced_gradients(net, x)
    assert ("aten.addmm.default" in operations) is not rewritten
    y = x.numpy() @ net.weight.detach().numpy().T + net.bias.detach().numpy()
    np.testing.assert_allclose(gradients[0].numpy(), (y**2).T @ x.numpy(), rtol=1e-9)
    np.testing.assert_allclose(gradients[1].numpy(), (y**2).sum(0), rtol=1e-9)
