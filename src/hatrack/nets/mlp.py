"""A plain multi-layer perceptron: flatten, then linear → ReLU → dropout for each width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from hatrack.nets.init import initialise


def mlp(
    shape: Sequence[int],
    widths: Sequence[int] = (2000, 2000),
    dropout: float = 0.5,
    input_dropout: float = 0.2,
    init: str = "xavier",
) -> nn.Module:
    """Return x → features for inputs of `shape`; HAT's MNIST net is 2 × 2000 with dropout 0.2 and 0.5."""
    net = nn.Sequential()
    net.add_module("flatten", nn.Flatten())
    net.add_module("drop0", nn.Dropout(input_dropout))
    for i, (fan_in, fan_out) in enumerate(pairwise([prod(shape), *widths]), start=1):
        net.add_module(f"fc{i}", nn.Linear(fan_in, fan_out))
        net.add_module(f"relu{i}", nn.ReLU())
        net.add_module(f"drop{i}", nn.Dropout(dropout))
    return initialise(net, init)
