"""What each gate is worth to what a network does, learned with its own answers as the teacher.

a      a gate in [0, 1] an entry, 1 at first; the weights stay as they are
loss   D(f_a(x), f_1(x)) / D(f_0(x), f_1(x)) + λ·Σ a·(1 − a^{<t}), D the target's distance; λ rises step by step
worth  Σ_steps a: what answers can do without closes while λ is small; ∞ for what earlier tasks have taken
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.targets import Target

STEPS = 150
SPEED = 0.05  # of Adam: a gate that nothing holds closes in 20 steps
PRICES = 0.01, 100.0  # λ·(number of gates), first and last
CLOSED = 0.05  # share of the gates still open at which nothing more is learned


def learned_worth(
    answer: Callable[[Any, Tensor], Tensor], taken: Tensor, target: Target, batches: Iterator[Any]
) -> Tensor:
    """Return what each gate is worth; `answer` computes the output for inputs and gates, `batches` never ends."""
    every, free = torch.ones_like(taken, dtype=torch.bool), 1 - taken
    a = torch.ones_like(taken, requires_grad=True)
    optimizer, worth = torch.optim.Adam([a], lr=SPEED), torch.zeros_like(taken)
    first, last = PRICES
    for step in range(STEPS):
        x = next(batches)
        with torch.no_grad():
            teacher = answer(x, every)
            nothing = target.distance(answer(x, ~every), teacher, 1.0) - target.distance(teacher, teacher, 1.0)
            size = nothing if nothing > 0 else torch.ones_like(nothing)
        price = first * (last / first) ** (step / (STEPS - 1)) / len(taken)
        loss = target.distance(answer(x, a), teacher, 1.0) / size + price * torch.dot(a, free)
        (a.grad,) = torch.autograd.grad(loss, a)
        optimizer.step()
        a.data.clamp_(0, 1)
        worth += a.detach()
        if bool(torch.dot(a.detach(), free) < CLOSED * free.sum()):
            break
    return torch.where(taken > 0, torch.inf, worth)


def most(worth: Tensor, without: int) -> Tensor:
    """Mark all gates but so many, those that are worth least."""
    gates = torch.ones_like(worth, dtype=torch.bool)
    gates[worth.argsort(stable=True)[:without]] = False
    return gates


def least(holds: Callable[[int], bool], last: int) -> int:
    """Return the least number for which it holds, if it holds from some number on; at most `last`."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def without_end(feed: Feed, size: int, generator: torch.Generator) -> Iterator[Any]:
    """Yield prepared inputs, epoch after epoch in new orders."""
    while True:
        for batch in feed.batches(size, generator):
            yield batch.x
