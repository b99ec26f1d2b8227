"""An input that a network takes, made from its first layer, where nobody has given one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hatrack.errors import HatrackError
from hatrack.nets.model import Model

SIDES = (32, 28, 64, 224, 16, 8, 96, 128, 256)  # of pictures, and lengths of signals, most usual first
LENGTH = 16  # of a text or a sequence


def first_input(model: Model, task: str) -> Tensor:
    """Return one input of zeros that goes through the network."""
    usual = next((p.dtype for p in model.net.parameters() if p.is_floating_point()), None)
    for candidate in _candidates(model.net):
        x = candidate.to(model.device, usual if candidate.is_floating_point() else None)
        try:
            model.try_out(x)
        except Exception:  # of which kind depends on the layer
            continue
        return x
    raise HatrackError(
        f"task {task!r}: what {type(model.net).__name__} takes cannot be seen from its first layer; give the first "
        f"task a batch of its inputs: hats.begin(…, example=x)."
    )


def _candidates(net: nn.Module) -> Iterator[Tensor]:
    """Yield inputs for the first layer that has a width."""
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            yield torch.zeros(1, layer.in_features)
        elif isinstance(layer, _ConvNd):
            yield from (torch.zeros(1, layer.in_channels, *[side] * len(layer.kernel_size)) for side in SIDES)
        elif isinstance(layer, nn.Embedding):
            yield torch.zeros(1, LENGTH, dtype=torch.long)
        elif isinstance(layer, nn.RNNBase):
            yield torch.zeros(1, LENGTH, layer.input_size)
        else:
            continue
        return
