"""An executor without processes: one job after the other, here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hatrack.studies.executor import Hear
from hatrack.studies.job import Job, execute
from hatrack.studies.pool import Done, failed


class Serial:
    """Remembers the names of the jobs it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def run(self, jobs: Sequence[Job], hear: Hear) -> Iterator[Done[Job]]:
        for job in jobs:
            self.given.append(job.name)
            reason, trace = None, ""
            try:
                execute(job, lambda message, job=job: hear(job, message))
            except Exception as error:
                reason, trace = failed(error)
            yield Done(job, reason=reason, trace=trace)


class Watch:
    """A callback that notes everything."""

    def __init__(self) -> None:
        self.todo = self.finished = -1
        self.steps: list[Any] = []
        self.ended: dict[str, str | None] = {}
        self.notices: list[str] = []

    def planned(self, todo: int, finished: int) -> None:
        self.todo, self.finished = todo, finished

    def said(self, job: Job, message: Any) -> None:
        self.steps.append(message)

    def over(self, job: Job, reason: str | None) -> None:
        self.ended[job.name] = reason

    def notice(self, line: str) -> None:
        self.notices.append(line)
