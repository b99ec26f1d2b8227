"""Progress of a study: a line for each run that ends, and now and then one about those under way."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from hatrack.errors import HatrackError
from hatrack.measure import scale
from hatrack.runs.references import read_result
from hatrack.show.terminal import complain, say_line
from hatrack.show.words import count, duration
from hatrack.studies.job import Job, Step

EVERY = 30.0
"""Seconds between two lines about what is under way."""


class StudyProgress:
    """A callback that prints plain lines."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._done = 0
        self._running: dict[str, Step] = {}
        self._notices: set[str] = set()

    def planned(self, todo: int, finished: int) -> None:
        self._todo = todo
        self._start = self._said = self._clock()
        before = f"; {count(finished, 'run')} finished before" if finished else ""
        say_line(f"{count(todo, 'run')} to do{before}")

    def said(self, job: Job, message: Any) -> None:
        """Note where a run stands, or print what it has to say (each line once)."""
        if not isinstance(message, Step):
            if message not in self._notices:
                self._notices.add(message)
                self.notice(f"{job.name}: {message}")
            return
        self._running[job.name] = message
        if self._clock() - self._said >= EVERY:
            self._said = self._clock()
            steps = (f"{name} task {min(s.task + 1, s.tasks)}/{s.tasks}" for name, s in self._running.items())
            say_line(f"{self._place()} under way: {', '.join(steps)}")

    def over(self, job: Job, reason: str | None) -> None:
        self._running.pop(job.name, None)
        self._done += 1
        self._said = self._clock()
        say_line(f"{self._place()} {job.name}: {_outcome(job) if reason is None else f'FAILED, {reason}'}")

    def notice(self, line: str) -> None:
        complain(line)

    def _place(self) -> str:
        return f"[{self._done}/{self._todo}, {duration(self._clock() - self._start)}]"


def _outcome(job: Job) -> str:
    try:
        result = read_result(job.path)
    except HatrackError as error:
        return str(error)
    accuracy, seconds = result["metrics"].get("acc"), result["seconds"]
    said = [] if accuracy is None else [f"{scale(result['tasks']).name} {accuracy:.4f}"]
    return ", ".join([*said, *([] if seconds is None else [duration(seconds)])])
