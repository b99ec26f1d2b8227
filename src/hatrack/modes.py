"""Modes, borrowed and given back: a network's and what forward passes store in it, and torch's around our calls."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager

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
def untouched(net: nn.Module) -> Iterator[list[str]]:
    """Undo what forward passes store in the network: buffers, attributes, and what they keep in its dicts and lists.

    Afterwards the yielded list names what was put in place of something else, or where nothing was.
    """
    own = [vars(module) for module in net.modules()]
    tables = [module._buffers for module in net.modules()]
    tables += [table for named in own for table in (named, *(held for held in named.values() if type(held) is dict))]
    entries = [dict(table) for table in tables]
    lists = [(held, list(held)) for named in own for held in named.values() if type(held) is list]
    values = [(buffer, buffer.detach().clone()) for buffer in net.buffers()]
    named = [(module, set(module._non_persistent_buffers_set)) for module in net.modules()]
    stored: list[str] = []
    try:
        yield stored
    finally:
        for table, before in zip(tables, entries, strict=True):
            made = table.keys() - before.keys()
            replaced = [name for name, held in before.items() if table.get(name, before) is not held]
            stored += map(str, (*made, *replaced))
            for name in made:
                del table[name]
            table.update({name: before[name] for name in replaced})
        for held, items in lists:
            if len(held) != len(items) or any(a is not b for a, b in zip(held, items, strict=True)):
                held[:] = items
                stored.append("a list")
        for module, names in named:
            module._non_persistent_buffers_set.intersection_update(names)
        for buffer, value in values:
            if not torch.equal(buffer, value):
                buffer.data.copy_(value)  # not in sight of autograd, which may have kept it


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, so that the last bits do not depend on how many cores a machine has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute as if the caller had switched nothing on: no autocast, no inference mode, gradients allowed.

    What an old task answers must not depend on where it is asked, nor what a new one learns on where it is learned.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def in_turns_undisturbed(turns: Generator[None, None, None]) -> Iterator[None]:
    """Run a generator so, and between its turns give the caller's modes back."""
    try:
        while True:
            with undisturbed():
                try:
                    next(turns)
                except StopIteration:
                    return
            yield
    finally:
        turns.close()
