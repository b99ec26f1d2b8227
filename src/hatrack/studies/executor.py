"""Executors carry out the runs of a study. One verb, so that others can be added.

An executor is given all jobs at once and may group them as it likes (all seeds of a spec in one process, say). Whatever
it does, a run's folder must be left as `runs.runner` leaves it: resumable after any epoch, `result.json` last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from hatrack.studies.gpu import Share, shares, work_together
from hatrack.studies.job import Job, execute
from hatrack.studies.notices import notices_to
from hatrack.studies.pool import Done, Pool

Hear = Callable[[Job, Any], Any]


class Executor(Protocol):
    """Called by `execute`, once, with the jobs that are not finished yet."""

    def run(self, jobs: Sequence[Job], hear: Hear) -> Iterator[Done[Job]]:
        """Yield each job as it ends, well or not; tell `hear` a `job.Step` or a line of text meanwhile."""


class Local:
    """Processes on this machine: on CPUs one thread each, on GPUs one each, runs side by side."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def run(self, jobs: Sequence[Job], hear: Hear) -> Iterator[Done[Job]]:
        """Carry the jobs out in the order given."""
        device = jobs[0].spec.device
        size = self._workers if self._workers is not None else default_workers(device)
        if not device.startswith("cuda"):
            yield from _pooled(jobs, size, hear)
            return
        over: set[Path] = set()
        for done in _pooled(shares(jobs, size), size, _of_share(hear)):
            if isinstance(done.item, Job) and done.item.path not in over:  # a worker that took over says it all again
                over.add(done.item.path)
                yield done
        # What is left had no room beside the others, or its worker died, perhaps of another's fault: one by one.
        left = [(job,) for job in jobs if job.path not in over]
        for done in _pooled(left, size, _of_share(hear)):
            if isinstance(done.item, Job):
                yield done
            elif done.reason is not None:
                yield Done(done.item[0], reason=done.reason, trace=done.trace)


def _pooled(items: Sequence[Any], size: int, hear: Callable[[Any, Any], Any]) -> Iterator[Done[Any]]:
    """Carry out jobs or shares; yield what came of them, and of the jobs in a share."""
    if items:
        yield from Pool(min(size, len(items)), init_worker).run(items, work, hear)


def _of_share(hear: Hear) -> Callable[[Any, Any], Any]:
    """Return what passes on a message of a run of a share."""
    return lambda share, said: hear(*said)


def default_workers(device: str) -> int:
    """Return the number of cores this process may use, or of GPUs that are meant."""
    if device.startswith("cuda:"):
        return 1
    if device == "cuda":
        import torch

        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def init_worker(number: int) -> None:
    """Make a worker ready: one thread of its own, and its share of the GPUs."""
    import torch

    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())


def work(item: Job | Share, tell: Callable[[Any], Any]) -> None:
    """Carry out a job or a share."""
    if isinstance(item, Job):
        with notices_to(tell):
            execute(item, tell)
    else:
        work_together(item, tell)
