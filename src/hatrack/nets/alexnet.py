"""HAT's AlexNet-like network: three convolutions with pooling, then two wide linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from hatrack.errors import HatrackError
from hatrack.nets.init import initialise


def alexnet(
    shape: Sequence[int],
    width: int = 2048,
    dropout_early: float = 0.2,
    dropout_late: float = 0.5,
    width_scale: float = 1.0,
    part: float = 1.0,
    branches: int = 1,
    init: str = "xavier",
) -> nn.Module:
    """Return x → features for pictures of `shape` (channels, side, side).

    Kernels follow the published net: side//8, side//10 and 2, each ReLU → dropout → 2×2 max-pool; for
    32×32×3 that is conv 64 4×4, conv 128 3×3, conv 256 2×2 and a flatten to 1024.

    width_scale  a layer of n units has int(width_scale · n), at least one
    part         a method's own column or module has that part of it: a column of PNN 1.117/T in HAT's paper
    branches     every layer is so many of that width side by side, h_l = Σ_b pool(ReLU(W_{l,b} h_{l−1})): PathNet's
                 modules, 16 with part = 0.258 there; they want init = "torch", for Xavier's makes their sums grow
    init         how layers begin, see init.py
    """
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] < 20:
        raise HatrackError(
            f"alexnet takes square pictures of at least 20×20 as (channels, side, side), got {tuple(shape)}; "
            f"for other inputs use the net 'mlp'."
        )
    if width_scale <= 0 or part <= 0 or branches < 1:
        raise HatrackError(
            f"alexnet takes a width_scale above 0, a part above 0 and at least 1 branch, got "
            f"width_scale={width_scale}, part={part} and branches={branches}."
        )
    scale = width_scale * part
    channels, side = shape[0], shape[1]
    net = nn.Sequential()
    stages = ((64, side // 8, dropout_early), (128, side // 10, dropout_early), (256, 2, dropout_late))
    for i, (published, kernel, rate) in enumerate(stages, start=1):
        filters = max(1, int(scale * published))
        net.add_module(f"conv{i}", nn.Conv2d(channels, branches * filters, kernel))
        net.add_module(f"relu{i}", nn.ReLU())
        net.add_module(f"drop{i}", nn.Dropout(rate))
        net.add_module(f"pool{i}", nn.MaxPool2d(2))
        if branches > 1:
            net.add_module(f"sum{i}", BranchSum(filters))
        channels, side = filters, (side - kernel + 1) // 2
    net.add_module("flatten", nn.Flatten())
    features = channels * side * side
    for i in (1, 2):
        units = max(1, int(scale * width))
        net.add_module(f"fc{i}", nn.Linear(features, branches * units))
        net.add_module(f"relu{i + 3}", nn.ReLU())
        net.add_module(f"drop{i + 3}", nn.Dropout(dropout_late))
        if branches > 1:
            net.add_module(f"sum{i + 3}", BranchSum(units))
        features = units
    return initialise(net, init, branches)


class BranchSum(nn.Module):
    """Add up branches of n units that stand side by side, however many, (batch, branches · n, …) → (batch, n, …)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def forward(self, x: Tensor) -> Tensor:
        summed: Tensor = x.unflatten(1, (-1, self.units)).sum(1)
        return summed
