"""Runs of a study on GPUs: those that differ in nothing but their seed are trained together (see learn/cohort.py).

A group is one piece of work for one process; its runs stay runs of their own, each in its folder.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hatrack.errors import HatrackError
from hatrack.learn.cohort import together
from hatrack.studies.job import Job, carrying
from hatrack.studies.pool import Done

LARGEST = 8  # runs in a group: more gain nothing on a GPU that eight small networks keep busy


@dataclass(frozen=True)
class Group:
    """Jobs to be carried out side by side."""

    jobs: tuple[Job, ...]


def grouped(jobs: Sequence[Job], largest: int = LARGEST) -> list[Group]:
    """Put jobs whose specs differ in the seed alone together, in the order of the first of each."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        alike.setdefault(job.spec.model_copy(update={"seed": 0}).toml(), []).append(job)
    return [
        Group(tuple(members[start : start + largest]))
        for members in alike.values()
        for start in range(0, len(members), largest)
    ]


def work_together(group: Group, tell: Callable[[Any], Any]) -> list[tuple[str, str] | None]:
    """Carry out a group; `tell` hears (which of them, what it says). Return why each failed, None where it did not."""
    members = [carrying(job, partial(_tell, tell, place)) for place, job in enumerate(group.jobs)]
    stopped = together(members, torch.device(group.jobs[0].spec.device))
    return [None if error is None else _words(error) for error in stopped]


def _tell(tell: Callable[[Any], Any], place: int, message: Any) -> Any:
    return tell((place, message))


def _words(error: Exception) -> tuple[str, str]:
    text = " ".join(str(error).split())
    if isinstance(error, HatrackError):
        return text, ""
    trace = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__, trace


def each(done: Done[Group]) -> Iterator[Done[Job]]:
    """Return what came of every job of a group."""
    for place, job in enumerate(done.item.jobs):
        own = (done.reason, done.trace) if done.reason is not None else done.value[place] or (None, "")
        yield Done(job, reason=own[0], trace=own[1])
