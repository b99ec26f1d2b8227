"""HAT's AlexNet-like network: three convolutions with pooling, then two wide linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from hatrack.errors import HatrackError
from hatrack.nets.init import xavier


def alexnet(
    shape: Sequence[int], width: int = 2048, dropout_early: float = 0.2, dropout_late: float = 0.5
) -> nn.Module:
    """Return x → features for pictures of `shape` (channels, side, side).

    Kernels follow the published net: side//8, side//10 and 2, each ReLU → dropout → 2×2 max-pool; for
    32×32×3 that is conv 64 4×4, conv 128 3×3, conv 256 2×2 and a flatten to 1024.
    """
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] < 20:
        raise HatrackError(
            f"alexnet takes square pictures of at least 20×20 as (channels, side, side), got {tuple(shape)}; "
            f"for other inputs use the net 'mlp'."
        )
    channels, side = shape[0], shape[1]
    net = nn.Sequential()
    stages = ((64, side // 8, dropout_early), (128, side // 10, dropout_early), (256, 2, dropout_late))
    for i, (filters, kernel, rate) in enumerate(stages, start=1):
        net.add_module(f"conv{i}", nn.Conv2d(channels, filters, kernel))
        net.add_module(f"relu{i}", nn.ReLU())
        net.add_module(f"drop{i}", nn.Dropout(rate))
        net.add_module(f"pool{i}", nn.MaxPool2d(2))
        channels, side = filters, (side - kernel + 1) // 2
    net.add_module("flatten", nn.Flatten())
    features = channels * side * side
    for i in (1, 2):
        net.add_module(f"fc{i}", nn.Linear(features, width))
        net.add_module(f"relu{i + 3}", nn.ReLU())
        net.add_module(f"drop{i + 3}", nn.Dropout(dropout_late))
        features = width
    return xavier(net)
