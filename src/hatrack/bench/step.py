"""`hatrack bench step`: what a training step costs under plain SGD and under HAT, on the AlexNet-like net.

The sides take turns, a few steps each, round after round: on a shared machine only ratios from one round compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from hatrack.data.feed import Batch, Feed, Part
from hatrack.data.task import Split, Task
from hatrack.learn.learner import pick_device
from hatrack.learn.step import OptimizerFactory, Stepper
from hatrack.learn.step import build as new_optimizer
from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.methods.sgd import SGD
from hatrack.nets import build
from hatrack.nets.model import Model

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 64


@dataclass(frozen=True)
class Timing:
    """Milliseconds a step of one side (median over rounds), and its ratio to the first side, round by round."""

    side: str
    milliseconds: float
    ratio: float


def interleave(sides: Mapping[str, Callable[[], None]], rounds: int, steps: int, device: torch.device) -> list[Timing]:
    """Time every side for `steps` calls a round; the first side is what ratios refer to."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, call in sides.items():
            _wait(device)
            start = perf_counter()
            for _ in range(steps):
                call()
            _wait(device)
            if turn:  # the first round only warms up
                times[side].append((perf_counter() - start) / steps * 1000)
    first = next(iter(times.values()))
    return [
        Timing(side, median(taken), median(t / f for t, f in zip(taken, first, strict=True)))
        for side, taken in times.items()
    ]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ready(
    method: Method, device: torch.device, finished: int, factory: OptimizerFactory | None = None
) -> Callable[[], None]:
    """Return a function that runs one training step of `method` on its task number `finished`."""
    task = _noise_task()
    model = Model(build("alexnet", SHAPE), device)
    model.meet(torch.zeros(1, *SHAPE, device=device))
    method.attach(model)
    feed = Feed([Part(0, task.train, task.inputs)], device)
    for t in range(finished + 1):
        model.add_task(CLASSES, torch.Generator().manual_seed(t))
        method.begin_task(t, feed, torch.Generator().manual_seed(t))
        if t < finished:
            method.end_task(feed)
    stepper = Stepper(method, new_optimizer(method, factory))
    batch = next(feed.batches(BATCH))
    batch = Batch(batch.x.clone(), batch.y.clone())
    method.train_mode()
    method.clock.start(100)
    return lambda: stepper.step(batch)


def _noise_task() -> Task:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (BATCH, *SHAPE), dtype=torch.uint8, generator=draw)
    y = torch.arange(BATCH) % CLASSES
    return Task("noise", Split(x, y), classes=CLASSES)


def machine(device: torch.device) -> str:
    """Name what a figure was measured on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return f"float32, torch {torch.__version__}, {name}"


def step_table(device: str = "auto", rounds: int = 15, steps: int = 3) -> str:
    """Return the table as text."""
    where = pick_device(device)
    sides = {
        "plain SGD": ready(SGD(lr=1e-4), where, 0),
        "HAT, first task": ready(HAT(lr=1e-4), where, 0),
        "HAT, second task (locked)": ready(HAT(lr=1e-4), where, 1),
    }
    timings = interleave(sides, rounds, steps, where)
    head = f"AlexNet-like net, batch {BATCH}, {machine(where)}; {rounds} interleaved rounds of {steps} steps"
    rows = [f"{t.side:<28}{t.milliseconds:>9.2f} ms a step{t.ratio:>9.3f} × plain SGD" for t in timings]
    return "\n".join([head, *rows])
