"""A small network for time series: 1-d convolutions with pooling, then the averages of a few stretches of time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from hatrack.errors import HatrackError
from hatrack.nets.init import initialise


def conv1d(
    shape: Sequence[int],
    widths: Sequence[int] = (32, 64, 64),
    kernel: int = 7,
    stretches: int = 4,
    dropout: float = 0.2,
    init: str = "he",
) -> nn.Module:
    """Return x → features for series of `shape` (channels, length), a convolution of `kernel` values for each width.

    Each is conv → batch norm → ReLU → dropout, with 2-wide max-pooling between them. What is left of the time is
    averaged in `stretches`, and features are the averages of every unit in each: where in a series something happens
    stays known.
    """
    fewest = 2 ** max(0, len(widths) - 1)  # which pooling leaves one value of
    if len(shape) != 2 or shape[1] < fewest:
        raise HatrackError(
            f"conv1d takes series of at least {fewest} values as (channels, length), got {tuple(shape)}; for other "
            f"inputs use the net 'mlp', for shorter ones fewer widths."
        )
    if not widths or kernel < 1 or kernel % 2 == 0 or stretches < 1:
        raise HatrackError(
            f"conv1d takes at least one width, an odd kernel and at least one stretch, got widths={list(widths)}, "
            f"kernel={kernel}, stretches={stretches}."
        )
    net = nn.Sequential()
    for i, (fan_in, fan_out) in enumerate(pairwise([shape[0], *widths]), start=1):
        if i > 1:
            net.add_module(f"pool{i - 1}", nn.MaxPool1d(2))
        net.add_module(f"conv{i}", nn.Conv1d(fan_in, fan_out, kernel, padding=kernel // 2, bias=False))
        net.add_module(f"norm{i}", nn.BatchNorm1d(fan_out))
        net.add_module(f"relu{i}", nn.ReLU())
        net.add_module(f"drop{i}", nn.Dropout(dropout))
    net.add_module("average", nn.AdaptiveAvgPool1d(stretches))
    net.add_module("flatten", nn.Flatten())
    return initialise(net, init)
