"""Progress where nobody can redraw a line: one line a task, and one every ten seconds in between."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from hatrack.learn.fit import Epoch
from hatrack.runs.callback import Outcome, Plan
from hatrack.show.headline import headline
from hatrack.show.terminal import say_line
from hatrack.show.timeleft import TimeLeft
from hatrack.show.words import duration, facts, outcome_facts

EVERY = 10.0
"""Seconds between two lines about the same task."""


class PlainProgress:
    """A listener that prints plain lines."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock

    def planned(self, plan: Plan) -> None:
        """Print what is about to be done."""
        self._tasks = len(plan.names)
        self._left = TimeLeft(plan.work, plan.epochs, self._clock)
        self._said = self._clock()
        say_line(headline(plan))

    def epoch(self, epoch: Epoch) -> None:
        """Print a line if the last one is old."""
        left = self._left.after(epoch.task, epoch.epoch)
        if self._clock() - self._said < EVERY:
            return
        self._said = self._clock()
        place = f"task {epoch.task + 1}/{self._tasks} {epoch.name}: epoch {epoch.epoch} of at most {epoch.epochs}"
        say_line(", ".join([place, *facts(epoch), f"at most {duration(left)} left"]))

    def learned(self, outcome: Outcome) -> None:
        """Print the task's result."""
        self._said = self._clock()
        say_line(f"task {outcome.task + 1}/{self._tasks} {outcome.name}: {', '.join(outcome_facts(outcome))}")
