"""What a study has found so far, read back from its run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError
from hatrack.measure import Reading
from hatrack.report import write as write_report
from hatrack.report.read import epochs
from hatrack.report.words import counted
from hatrack.runs.references import completed, read_result, store
from hatrack.studies.plan import Plan, Planned


@dataclass(frozen=True)
class Finding:
    """One run of the study: what its result.json holds with all measures, or why there is none.

    `references`: the accuracies that measures are taken against, by the reference's name.
    """

    run: Planned
    result: Mapping[str, Any] | None
    reason: str = ""
    references: Mapping[str, Any] = field(default_factory=dict)

    def value(self, measure: Reading) -> float | None:
        return None if self.result is None else measure.value(self.result, self.references)


def gather(plan: Plan, own: Path, reasons: Mapping[Path, str], notice: Callable[[str], None]) -> list[Finding]:
    """Return a finding for every planned run; in the study's `own` folder, results and reports are completed on disk.

    `reasons` says why runs failed that were tried just now. A reference that does not fit is told to `notice`, and so
    are files that cannot be read.
    """
    return [_finding(run, own, reasons, notice) for run in plan.runs]


def _finding(run: Planned, own: Path, reasons: Mapping[Path, str], notice: Callable[[str], None]) -> Finding:
    if not (run.path / "result.json").exists():
        return Finding(run, None, reasons.get(run.path, "not finished"))
    against = [path for path in run.against if (path / "result.json").exists()]
    try:
        result = read_result(run.path)
        if not against:
            return Finding(run, result)
        alone, _ = completed(run.path, [])
    except HatrackError as error:
        notice(str(error))
        return Finding(run, None, str(error))
    try:
        whole, references = completed(run.path, against)
    except HatrackError as error:
        notice(str(error))
        return Finding(run, alone)  # not what earlier references gave
    if whole["metrics"] != result["metrics"] and own in run.path.parents:
        # Of the old figures; gone first, so that a process killed in between leaves none that nobody would write again.
        (run.path / "report.html").unlink(missing_ok=True)
        try:
            store(run.path, whole)  # a reference is shared with other studies, and stays as it is
            write_report(run.path)
        except HatrackError as error:
            notice(str(error))
    return Finding(run, whole, references=references)


def diverged(folders: Iterable[Path], notice: Callable[[str], None]) -> dict[Path, str]:
    """Return in how many of their epochs runs diverged that are finished and did; what cannot be read is told."""
    found = {}
    for path in folders:
        if not (path / "result.json").exists():
            continue
        try:
            seen = epochs(path / "metrics.jsonl")
        except HatrackError as error:
            notice(str(error))
            continue
        if lost := sum(epoch.diverged for epoch in seen):
            found[path] = f"{lost} of {counted(len(seen), 'epoch')}"
    return found


def without_value(measures: Sequence[Reading], findings: Sequence[Finding]) -> Iterator[str]:
    """Say of every measure that no finished run has a value of it."""
    finished = [finding for finding in findings if finding.result is not None]
    for measure in measures:
        if finished and all(finding.value(measure) is None for finding in finished):
            yield f"no finished run has a value of measure {measure.text!r}{_layers(measure, finished)}."


def _layers(measure: Reading, finished: Sequence[Finding]) -> str:
    """Name the layers that there are, where one was asked for."""
    shares = [(finding.result or {}).get(measure.measure.name) for finding in finished] if measure.layer else []
    names = dict.fromkeys(layer for share in shares if share for layer in share[-1]["layers"])
    return f"; the layers are {', '.join(names)}" if names and measure.layer not in names else ""
