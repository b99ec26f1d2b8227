"""Carry a study out: what is not finished goes to the executor; whatever comes of it, the report is written.

Nothing but the run folders remembers what is done, so that a study killed at any moment goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.measure import SERVES, Reading
from hatrack.notebook import card, table
from hatrack.runs.folder import held
from hatrack.runs.setup import sequence_of
from hatrack.studies.cost import most_tasks
from hatrack.studies.executor import Executor
from hatrack.studies.file import Study
from hatrack.studies.findings import Finding, diverged, gather, without_value
from hatrack.studies.job import Job
from hatrack.studies.plan import Places, Plan, plan


class StudyCallback(Protocol):
    """Hears how a study goes: planned once, then for each run said (many) and over."""

    def planned(self, todo: int, finished: int) -> None:
        """Note how many runs are to be done, and how many were finished before."""

    def said(self, job: Job, message: Any) -> None:
        """Note what a run says of itself: a `job.Step`, or a line of text."""

    def over(self, job: Job, reason: str | None) -> None:
        """Note that a run has ended; `reason` says why, if badly."""

    def notice(self, line: str) -> None:
        """Note a line that concerns no single run."""


@dataclass(frozen=True)
class Outcome:
    """All findings of a study; by folder, references among them: why runs failed, in how many epochs some diverged."""

    study: Study
    findings: list[Finding]
    reasons: dict[Path, str]
    diverged: dict[Path, str] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from hatrack.studies.table import tables

        shown = [table(heads, rows) for heads, *rows in (one.lines() for one in tables(self))]
        return card(f"Study {self.study.name}", *shown)


@dataclass(frozen=True)
class Machine:
    """Where and how the runs are carried out; `remote`: on other machines, whose data need not be here."""

    device: str | None = None
    data: str | None = None
    log: tuple[str, ...] = ()
    remote: bool = False


def execute(
    study: Study, out: Path, references: Path, machine: Machine, executor: Executor, callback: StudyCallback
) -> Outcome:
    """Do what is left of a study in its folder `out`."""
    # Absolute, since workers may run elsewhere.
    places = Places(out.absolute() / "runs", references.absolute())
    planned = plan(study, places, machine.device, machine.data)
    _require_tasks(study.measures, planned)
    if not machine.remote:
        _require_data(planned)
    if any((out / name).exists() for name in ("spec.toml", "search.json")):
        raise HatrackError(f"{str(out)!r} holds a run or a search; choose another --out.")
    with held(out, "study", "runs"):
        for draft in places.runs.glob(".*.tmp"):
            shutil.rmtree(draft)  # a killed process was making it
        atomic.write(out / "study.toml", study.text)
        reasons = _work(planned, out, machine, executor, callback)
        findings = gather(planned, places.runs, reasons, callback.notice)
        for line in without_value(study.measures, findings):
            callback.notice(line)
        return Outcome(study, findings, reasons, diverged(planned.work(), callback.notice))


def _require_tasks(measures: Sequence[Reading], planned: Plan) -> None:
    """Raise for a measure after more tasks than any run has, where that is known beforehand."""
    counts = [count for run in planned.runs if (count := most_tasks(run.spec)) is not None]
    for measure in measures if len(counts) == len(planned.runs) else ():
        if measure.tasks > max(counts):
            raise HatrackError(
                f"measure {measure.text!r} needs {measure.tasks} tasks, but no benchmark of the study has more than "
                f"{max(counts)}; ask for it after an earlier task."
            )


def _require_data(planned: Plan) -> None:
    """Raise what every run would fail with, before anything is made.

    Finished runs need no data, and where some runs can be done, the others fail with their reason beside them.
    """
    jobs = [Job(path, spec) for path, spec in planned.work().items()]
    if any(job.done for job in jobs):
        return
    # What is read does not depend on the seed.
    different = {(j.spec.benchmark, str(j.spec.benchmark_options), j.spec.data): j.spec for j in jobs}
    errors = []
    for spec in different.values():
        try:
            sequence_of(spec)
        except HatrackError as error:
            errors.append(error)
        else:
            return
    if errors:
        raise errors[0]


def _work(planned: Plan, out: Path, machine: Machine, executor: Executor, callback: StudyCallback) -> dict[Path, str]:
    """Carry out the runs that are not finished; return why some of them failed."""
    # A reference is shared with other studies, and stays as it is.
    against = {run.path: run.against for run in planned.runs if run.spec.method not in SERVES}
    work = planned.work().items()
    jobs = [Job(path, spec, machine.log, against.get(path, ())) for path, spec in work]
    todo = [job for job in jobs if not job.done]
    callback.planned(len(todo), len(jobs) - len(todo))
    reasons: dict[Path, str] = {}
    for over in executor.run(todo, callback.said) if todo else ():
        with suppress(OSError):  # on a full disk, why the run failed is said all the same
            _keep_trace(out / "failures" / f"{over.item.name}.txt", over.trace)
        if over.reason is not None:
            reasons[over.item.path] = over.reason
        callback.over(over.item, over.reason)
    return reasons


def _keep_trace(file: Path, trace: str) -> None:
    """Leave behind where in the code a run failed; one that went well removes what an earlier try left."""
    if trace:
        file.parent.mkdir(exist_ok=True)
        atomic.write(file, trace)
    else:
        file.unlink(missing_ok=True)
