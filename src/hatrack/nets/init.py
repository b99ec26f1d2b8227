"""How the linear and convolution layers of built-in networks begin.

xavier  U(−b, b), b² = 6/(fan_in + fan_out): HAT's; biases 0
he      N(0, 2/fan), the fan_out of convolutions, as usual in residual nets, the fan_in of linear ones; biases 0
torch   as torch makes layers: U(−b, b), b² = 1/fan_in, biases as well
"""

from __future__ import annotations

from torch import nn

from hatrack.errors import unknown

INITS = ("xavier", "he", "torch")


def initialise(net: nn.Module, init: str, branches: int = 1) -> nn.Module:
    """Initialise all linear and convolution layers, each branch by itself; `net.hatrack_init` says how to draw more."""
    if init not in INITS:
        raise unknown("init", init, INITS)
    net.hatrack_init = init, branches  # type: ignore[assignment]
    for layer in net.modules():
        if init == "torch" or not isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            continue
        for branch in layer.weight.data.chunk(branches):
            if init == "xavier":
                nn.init.xavier_uniform_(branch)
            else:
                linear = isinstance(layer, nn.Linear)
                nn.init.kaiming_normal_(branch, mode="fan_in" if linear else "fan_out", nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return net
