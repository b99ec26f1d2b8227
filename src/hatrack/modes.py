"""Training and evaluation mode of a network, borrowed and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Put the network into evaluation mode, and each module back into its own mode afterwards."""
    training = [module for module in net.modules() if module.training]
    net.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
