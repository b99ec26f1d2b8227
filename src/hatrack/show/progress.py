"""Progress of a run: redrawn on a terminal (see `live`), elsewhere a line a task, and one every ten seconds between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from hatrack.learn.fit import Epoch
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.show.terminal import say_line
from hatrack.show.words import duration, facts, task_facts

EVERY = 10.0
"""Seconds between two lines about the same task."""


@contextmanager
def progress() -> Iterator[object]:
    """Give the callback that fits the standard output there is."""
    if not sys.stdout.isatty():
        yield PlainProgress()
        return
    from rich.console import Console

    from hatrack.show.live import LiveProgress

    with LiveProgress(Console(highlight=False)) as live:
        yield live


class PlainProgress:
    """A callback that prints plain lines."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock

    def on_start(self, plan: RunPlan) -> None:
        self._tasks = len(plan.names)
        self._left = TimeLeft(plan.work, plan.epochs, self._clock)
        self._said = self._clock()
        say_line(headline(plan))

    def on_epoch(self, epoch: Epoch) -> None:
        left = self._left.after(epoch.task, epoch.epoch)
        if self._clock() - self._said < EVERY:
            return
        self._said = self._clock()
        place = f"task {epoch.task + 1}/{self._tasks} {epoch.name}: epoch {epoch.epoch} of at most {epoch.epochs}"
        say_line(", ".join([place, *facts(epoch), f"at most {duration(left)} left"]))

    def on_task(self, result: TaskResult) -> None:
        self._said = self._clock()
        say_line(task_line(result, self._tasks))


def task_line(result: TaskResult, tasks: int, seed: int | None = None) -> str:
    """Return what there is to say of a learned task, one of so many; of one of several runs by its seed."""
    which = "" if seed is None else f"seed {seed}, "
    return f"task {result.task + 1}/{tasks} {which}{result.name}: {', '.join(task_facts(result))}"


def headline(plan: RunPlan) -> str:
    """Return method, benchmark, net, seed, device and folder; for a resumed run also where it goes on."""
    spec = plan.spec
    what = f"{spec.method} on {spec.benchmark}, net {spec.net}, seed {spec.seed}, {spec.device} → {plan.path}"
    return f"{what} (resumed: {plan.finished} of {len(plan.names)} tasks were finished)" if plan.resumed else what


class TimeLeft:
    """An upper bound: the pace so far, as if every task took all its epochs (most stop sooner)."""

    def __init__(self, work: Sequence[int], epochs: int, clock: Callable[[], float] = monotonic) -> None:
        self._work, self._epochs, self._clock = work, epochs, clock
        self._start, self._done = clock(), 0

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return self._clock() - self._start

    def after(self, task: int, epoch: int) -> float:
        """Note that an epoch (counted from 1) of `task` is done; return the seconds left at most."""
        self._done += self._work[task]
        left = (self._epochs - epoch) * self._work[task] + self._epochs * sum(self._work[task + 1 :])
        return self.elapsed() / self._done * left
