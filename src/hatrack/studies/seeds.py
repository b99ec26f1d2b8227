"""Runs that differ in their seed, on a CPU: each in a process of its own with one thread, as many at once as cores.

So a run takes less time than with all threads for one after the other (docs/speed.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hatrack.errors import HatrackError
from hatrack.runs.folder import Folder
from hatrack.runs.references import read_result
from hatrack.runs.spec import Spec
from hatrack.studies.executor import Hear, Local
from hatrack.studies.job import Job
from hatrack.studies.pool import Done


def execute_apart(
    specs: Sequence[Spec], folders: Sequence[Folder], hear: Hear, log: tuple[str, ...] = ()
) -> list[dict[str, Any] | Exception]:
    """Carry out all runs in their folders, just made; return each one's result, or what stopped it.

    `hear` is told a `job.Step` or a line of text.
    """
    jobs = [Job(f.path.absolute(), spec, log) for f, spec in zip(folders, specs, strict=True)]
    for folder in folders:
        folder.close()  # the workers are to open it
    ended = {done.item.path: done for done in Local().run(jobs, hear)}
    return [_outcome(folder, ended[job.path]) for folder, job in zip(folders, jobs, strict=True)]


def _outcome(folder: Folder, done: Done[Job]) -> dict[str, Any] | Exception:
    if done.reason is None:
        return read_result(folder.path)
    try:
        with folder:  # what was refused before it had learned anything leaves none
            raise HatrackError(done.reason)
    except HatrackError as error:
        return error
