"""The study's table: for every benchmark and method, each measure over the seeds beside the paper's figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from hatrack.measure import Interval, interval
from hatrack.studies.carry import Outcome
from hatrack.studies.figures import Figure
from hatrack.studies.findings import Finding
from hatrack.studies.measures import Measure, measure

SECONDS, MEMORY = measure("seconds"), measure("memory")


@dataclass(frozen=True)
class Cell:
    """One measure of one method: its value for every seed that has one, and the paper's figure."""

    values: Mapping[int, float]
    figure: Figure | None

    @property
    def mean(self) -> float | None:
        """The mean over seeds."""
        return fmean(self.values.values()) if self.values else None

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (n − 1 below the line); None for fewer than two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def interval(self) -> Interval | None:
        """The mean with its 95 % interval."""
        return interval(list(self.values.values())) if self.values else None

    @property
    def verdict(self) -> str:
        """Whether our mean is within the paper's band, above or below; nothing where one of the two is missing."""
        return self.figure.verdict(self.mean) if self.figure is not None and self.mean is not None else ""


@dataclass(frozen=True)
class Row:
    """One method on one benchmark; `seconds` is the mean of a run, `memory` the largest peak.

    A row that is the paper's alone has no findings.
    """

    label: str
    cells: Mapping[str, Cell]
    findings: Sequence[Finding]
    seconds: float | None
    memory: float | None

    @property
    def finished(self) -> int:
        """The number of runs that are finished."""
        return sum(f.result is not None for f in self.findings)


@dataclass(frozen=True)
class Table:
    """All methods on one benchmark, in the order of the study file."""

    benchmark: str
    measures: Sequence[Measure]
    rows: Sequence[Row]

    def ours(self) -> list[Row]:
        """Return the rows that are more than the paper's."""
        return [row for row in self.rows if row.findings]


def tables(outcome: Outcome) -> list[Table]:
    """Return a table a benchmark."""
    study = outcome.study
    made = []
    for benchmark in (b.label for b in study.benchmarks):
        ours = [m.label for m in study.methods]
        theirs = [label for _, where, label in study.figures if where == benchmark and label not in ours]
        labels = [*ours, *dict.fromkeys(theirs)]
        rows = [_row(outcome, benchmark, label) for label in labels]
        made.append(Table(benchmark, study.measures, rows))
    return made


def _row(outcome: Outcome, benchmark: str, label: str) -> Row:
    found = [f for f in outcome.findings if (f.run.benchmark, f.run.method) == (benchmark, label)]
    cells = {
        m.text: Cell(_values(found, m), outcome.study.figures.get((m.text, benchmark, label)))
        for m in outcome.study.measures
    }
    seconds, memory = _values(found, SECONDS), _values(found, MEMORY)
    return Row(
        label,
        cells,
        found,
        seconds=fmean(seconds.values()) if seconds else None,
        memory=max(memory.values()) if memory else None,
    )


def _values(found: Sequence[Finding], measure: Measure) -> dict[int, float]:
    values = ((f.run.spec.seed, f.value(measure)) for f in found)
    return {seed: value for seed, value in values if value is not None}


def verdicts(made: Sequence[Table]) -> Counter[str]:
    """Count our figures that are within the paper's band, above and below it."""
    return Counter(c.verdict for t in made for row in t.rows for c in row.cells.values() if c.verdict)
