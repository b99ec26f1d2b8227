"""What is timed: epochs of real training steps under an engine, one learner's or several together.

A side is prepared as the learner would prepare it: network, method, tasks already finished, feed on the device. One
call runs one epoch of STEPS steps; the time of a call over STEPS (and over the members of a cohort) is the time a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hatrack.data.feed import Feed, Part
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.learn.machine.engine import Engine
from hatrack.learn.machine.side_by_side import OwnStream, take_turns
from hatrack.learn.step import OptimizerFactory, Stepper
from hatrack.learn.step import build as new_optimizer
from hatrack.methods.base import Method
from hatrack.nets import build
from hatrack.nets.model import Model

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 64


@dataclass(frozen=True)
class Case:
    """A method that stands in its task number `finished`, on a network, under an engine."""

    method: Callable[[], Method]
    finished: int = 0
    engine: str = "eager"
    precision: str = "tf32"
    net: Callable[[], nn.Module] = lambda: build("alexnet", SHAPE)
    shape: tuple[int, ...] = SHAPE
    factory: OptimizerFactory | None = None


class Member:
    """One learner's training in the middle of a task."""

    def __init__(self, case: Case, device: torch.device, steps: int) -> None:
        task = noise_task(steps, case.shape)
        self.method = case.method()
        self.model = Model(case.net(), device, case.precision)
        self.model.meet(torch.zeros(1, *case.shape, device=device))
        self.method.attach(self.model)
        feed = Feed([Part(0, task.train, task.inputs, task.target)], device)
        for t in range(case.finished + 1):
            self.model.add_task(task.target, torch.Generator().manual_seed(t), self.method.private())
            self.method.begin_task(t, feed, torch.Generator().manual_seed(t))
            if t < case.finished:
                self.method.finish(feed)
        self.engine = Engine(case.engine, Stepper(self.method, new_optimizer(self.method, case.factory)), feed, BATCH)
        self._shuffle = torch.Generator().manual_seed(0)

    def epoch(self) -> Iterator[None]:
        """Run one epoch in turns."""
        self.engine.begin_epoch(self._shuffle)
        while self.engine.advance():
            yield


def alone(case: Case, device: torch.device, steps: int) -> Callable[[], None]:
    """Return a function that runs one epoch of one learner."""
    return cohort(case, device, steps, 1)


def cohort(case: Case, device: torch.device, steps: int, members: int) -> Callable[[], None]:
    """Return a function that runs one epoch of several learners side by side."""
    return epochs([Member(case, device, steps) for _ in range(members)], device)


def epochs(members: Sequence[Member], device: torch.device) -> Callable[[], None]:
    """Return a function that runs one epoch of the given learners side by side."""
    streams = [OwnStream(device) for _ in members]

    def call() -> None:
        for _, stopped in take_turns([(on, member.epoch()) for on, member in zip(streams, members, strict=True)]):
            if stopped is not None:
                raise stopped

    return call


def noise_task(steps: int, shape: tuple[int, ...] = SHAPE) -> Task:
    """Return random pictures, enough for `steps` batches."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (BATCH * steps, *shape), dtype=torch.uint8, generator=draw)
    y = torch.arange(len(x)) % CLASSES
    return Task("noise", Split(x, y), classes=CLASSES)
