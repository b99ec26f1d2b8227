"""A task's head: one linear map of the units of the features, of all of a sample's or of each position's."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class Head(nn.Linear):
    """`axis`: None reads all features of a sample; 1 or −1 the units that stand there, the same at every position."""

    axis: int | None = None

    def forward(self, features: Tensor) -> Tensor:
        return self.computed(features, self.weight, self.bias)

    def computed(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return what a head of this kind with other values says."""
        return self.placed(linear(self.units_last(features), weight, bias))

    def units_last(self, features: Tensor) -> Tensor:
        """Return features with the units that the head reads on the last axis."""
        if self.axis is None:
            return features.flatten(1)
        return features.movedim(1, -1) if self.axis == 1 else features

    def placed(self, output: Tensor) -> Tensor:
        """Return answers, which stand on the last axis, where the features have their units."""
        return output.movedim(-1, 1) if self.axis == 1 else output


def new_head(width: int, outputs: int, device: torch.device, axis: int | None = None) -> Head:
    """Return a head with memory but no values yet, so that no caller's random numbers are used up."""
    head: Head = nn.utils.skip_init(Head, width, outputs, device=device)
    head.axis = axis
    return head


def no_head(device: torch.device) -> Head:
    """Return what stands in the place of a head that is gone: there is no entry in it."""
    head = new_head(1, 1, device)
    head.weight, head.bias = (
        nn.Parameter(torch.empty(shape, device=device), requires_grad=False) for shape in ((0, 0), (0,))
    )
    return head


def width_of(features: tuple[int, ...], axis: int | None) -> int:
    """Return how many units a head reads of features of this shape, the batch left out."""
    return features[0 if axis == 1 else -1] if axis is not None else torch.Size(features).numel()
