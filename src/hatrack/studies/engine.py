"""Engines carry out the runs of a study. One verb, so that others can be added.

An engine is given all jobs at once and may group them as it likes (all seeds of a spec in one process, say). Whatever
it does, a run's folder must be left as `runs.runner` leaves it: resumable after any epoch, `result.json` last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from hatrack.studies.cohorts import Group, each, grouped, work_together
from hatrack.studies.job import Job, carry_out
from hatrack.studies.pool import Done, Pool

Hear = Callable[[Job, Any], Any]


class Engine(Protocol):
    """Called by `carry`, once, with the jobs that are not finished yet."""

    def run(self, jobs: Sequence[Job], hear: Hear) -> Iterator[Done[Job]]:
        """Yield each job as it ends, well or not; tell `hear` a `job.Step` or a line of text meanwhile."""


class Local:
    """Processes on this machine: on CPUs one thread each, on GPUs one each, seeds side by side."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def run(self, jobs: Sequence[Job], hear: Hear) -> Iterator[Done[Job]]:
        """Carry the jobs out in the order given."""
        device = jobs[0].spec.device
        size = self._workers if self._workers is not None else default_workers(device)
        if not device.startswith("cuda"):
            yield from Pool(min(size, len(jobs)), settle).run(jobs, work, hear)
            return
        groups = grouped(jobs)
        for done in Pool(min(size, len(groups)), settle).run(groups, work, partial(_hear, hear)):
            yield from each(done)


def _hear(hear: Hear, group: Group, said: Any) -> Any:
    """Pass on what a run of a group says; a line of the log belongs to the first."""
    place, message = said if isinstance(said, tuple) else (0, said)
    return hear(group.jobs[place], message)


def default_workers(device: str) -> int:
    """Return the number of cores this process may use, or of GPUs."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settle(number: int) -> None:
    """Make a worker ready: one thread of its own, and its share of the GPUs."""
    import torch

    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())


def work(item: Job | Group, tell: Callable[[Any], Any]) -> Any:
    """Carry out a job or a group; warnings of the library and lines of its log become lines that `tell` hears."""
    import logging
    import warnings

    from hatrack.errors import HatrackWarning

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    log, handler = logging.getLogger("hatrack"), Forward()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            before = warnings.showwarning

            def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
                if issubclass(category, HatrackWarning):
                    tell(" ".join(str(message).split()))
                else:
                    before(message, category, *rest, **more)

            warnings.showwarning = show
            return work_together(item, tell) if isinstance(item, Group) else carry_out(item, tell)
    finally:
        log.removeHandler(handler)
