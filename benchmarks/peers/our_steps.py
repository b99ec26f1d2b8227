"""hatrack on the common MLP, in its second task; also a plain torch loop, which is the unit of the table.

The one argument is "plain" or the name of a method.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from steps import BATCH, CLASSES, INPUTS, RATE, SAMPLES, WIDTHS, serve


def backbone() -> nn.Module:
    """Return the common network without its heads."""
    return nn.Sequential(nn.Linear(INPUTS, WIDTHS[0]), nn.ReLU(), nn.Linear(*WIDTHS), nn.ReLU())


def plain() -> Callable[[], None]:
    """Return a step of plain SGD on tensors in memory."""
    net = nn.Sequential(backbone(), nn.Linear(WIDTHS[1], CLASSES))
    x, y = torch.randn(SAMPLES, INPUTS), torch.arange(SAMPLES) % CLASSES
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    done = 0

    def step() -> None:
        nonlocal done
        start = done % (SAMPLES // BATCH) * BATCH
        rows = slice(start, start + BATCH)
        optimizer.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
        done += 1

    return step


def ours(name: str) -> Callable[[], None]:
    """Return a step of a method after one finished task, as the learner's engine does it."""
    from hatrack.data.feed import Feed, Part
    from hatrack.data.inputs import Inputs
    from hatrack.data.samples import Split
    from hatrack.learn.step import Stepper, build
    from hatrack.methods import METHODS
    from hatrack.nets.model import Model
    from hatrack.targets import Classification

    x, y = torch.randn(SAMPLES, INPUTS), torch.arange(SAMPLES) % CLASSES
    device = torch.device("cpu")
    feed = Feed([Part(0, Split(x, y), Inputs(), Classification(CLASSES))], device)
    method, model = METHODS[name](), Model(backbone(), device)
    model.meet(x[:1])
    method.attach(model)
    for task in range(2):
        model.add_task(Classification(CLASSES), torch.Generator().manual_seed(task), method.private())
        method.begin_task(task, feed, torch.Generator().manual_seed(task))
        method.begin_phase(0)
        stepper = Stepper(method, build(method, None))
        stepper.begin_epoch(feed, BATCH)
        for batch in list(feed.batches(BATCH))[:5]:
            stepper.step(batch)
            method.clock.advance()
        if task == 0:
            method.finish(feed)
    batches = iter(())

    def step() -> None:
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = feed.batches(BATCH, torch.Generator().manual_seed(0))
            stepper.begin_epoch(feed, BATCH)
            batch = next(batches)
        stepper.step(batch)
        method.clock.advance()

    return step


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    serve(plain() if sys.argv[1] == "plain" else ours(sys.argv[1]))
