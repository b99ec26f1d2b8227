"""How built-in networks begin, against the formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hatrack.errors import HatrackError
from hatrack.nets import build


@pytest.mark.parametrize("net", ["mlp", "alexnet", "resnet18"])
@pytest.mark.parametrize("init", ["xavier", "he", "torch"])
def test_weights_spread_as_the_formula_says(net: str, init: str) -> None:
    torch.manual_seed(0)
    made = build(net, (3, 32, 32), init=init)
    layers = [m for m in made.modules() if isinstance(m, nn.Linear | nn.Conv2d) and m.weight.numel() > 5000]
    assert len(layers) > 1
    for layer in layers:
        weight = layer.weight.detach()
        field = weight[0, 0].numel()
        fan_in, fan_out = weight.shape[1] * field, weight.shape[0] * field
        he = 2 / (fan_in if isinstance(layer, nn.Linear) else fan_out)
        variance = {"xavier": 2 / (fan_in + fan_out), "he": he, "torch": 1 / (3 * fan_in)}[init]
        assert float(weight.var()) == pytest.approx(variance, rel=0.1)
        bounded = float(weight.abs().max()) <= (3 * variance) ** 0.5 * 1.0001
        assert bounded == (init != "he")  # uniform or normal
        if layer.bias is not None:
            assert bool((layer.bias == 0).all()) == (init != "torch")


def test_another_way_is_refused() -> None:
    with pytest.raises(HatrackError, match="unknown init 'zeros'"):
        build("mlp", (3, 32, 32), init="zeros")
