"""Layers are told of their new widths."""

from __future__ import annotations

import torch
from torch import nn

from hatrack.masks.narrow_layers import slice_layers
from hatrack.masks.trace import derive


def test_layers_know_their_new_widths() -> None:
    net = nn.Sequential(
        nn.Conv1d(2, 4, 1), nn.BatchNorm1d(4), nn.PReLU(4), nn.Flatten(), nn.Linear(12, 5)
    ).eval()  # fmt: skip
    units = derive(net, torch.randn(1, 2, 3))
    gone = torch.zeros(units.size, dtype=torch.bool)
    gone[[1, 3, 4]] = True
    slice_layers(net, units, gone)
    assert net[0].out_channels == net[1].num_features == net[2].num_parameters == 2
    assert (net[4].in_features, net[4].out_features) == (6, 4)
    assert net[1].running_mean.shape == (2,)
    assert net(torch.randn(3, 2, 3)).shape == (3, 4)
