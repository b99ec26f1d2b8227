"""Runs of a study on GPUs: as many as one GPU has room for are trained side by side (learn/machine/side_by_side.py).

A share of the runs is one piece of work for one process. It trains STREAMS of them at a time, whatever their methods
and seeds, and starts the next one when one ends. Each stays a run of its own, in its folder, with the result that it
would have had alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hatrack.learn.machine.side_by_side import OwnStream, take_turns
from hatrack.studies.job import Job, executing
from hatrack.studies.notices import notices_to
from hatrack.studies.pool import Done, failed

STREAMS = 8  # more gain nothing on a GPU that eight small networks keep busy


Share = tuple[Job, ...]
"""The jobs of one GPU."""


def shares(jobs: Sequence[Job], count: int) -> list[Share]:
    """Deal the jobs out."""
    return [tuple(jobs[start::count]) for start in range(min(count, len(jobs)))]


def work_together(share: Share, tell: Callable[[Any], Any]) -> None:
    """Carry out a share; `tell` hears (job, what it says of itself), and `Done` of every job that ends.

    Of one for which the GPU's memory did not suffice nothing is said: it may go better alone. After an error of the
    device itself every run of this process fails: it ends, so that another one takes the share over.
    """
    try:
        _work_together(share, tell)
    except torch.AcceleratorError:
        if len(share) == 1:
            raise
        os._exit(1)


def _work_together(share: Share, tell: Callable[[Any], Any]) -> None:
    device = torch.device(share[0].spec.device)
    members = ((OwnStream(device), _speaking(job, tell)) for job in share)
    for number, error in take_turns(members, STREAMS):
        if isinstance(error, torch.AcceleratorError):
            raise error
        if isinstance(error, torch.OutOfMemoryError) and len(share) > 1:
            continue
        reason, trace = (None, "") if error is None else failed(error)
        tell(Done(share[number], reason=reason, trace=trace))


def _speaking(job: Job, tell: Callable[[Any], Any]) -> Iterator[None]:
    """Carry a job out bit by bit; what the library says during its turns is said of this job."""

    def tell_of_job(message: Any) -> Any:
        return tell((job, message))

    turns = executing(job, tell_of_job)
    while True:
        with notices_to(tell_of_job):
            try:
                next(turns)
            except StopIteration:
                return
        yield
