"""The state of a network, borrowed and given back: its mode, and what a forward pass stores in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
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


@contextmanager
def untouched(net: nn.Module) -> Iterator[None]:
    """Undo what forward passes store in the network: buffers and attributes that they make, replace or write."""
    tables = [table for module in net.modules() for table in (vars(module), module._buffers)]
    entries = [dict(table) for table in tables]
    values = [(buffer, buffer.detach().clone()) for buffer in net.buffers()]
    named = [(module, set(module._non_persistent_buffers_set)) for module in net.modules()]
    try:
        yield
    finally:
        for table, before in zip(tables, entries, strict=True):
            for name in table.keys() - before.keys():
                del table[name]
            table.update({name: held for name, held in before.items() if table.get(name) is not held})
        for module, names in named:
            module._non_persistent_buffers_set.intersection_update(names)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)
