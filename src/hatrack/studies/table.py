"""A study's tables: for every benchmark and method, each measure over the seeds beside the paper's figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from hatrack.measure import Interval, Reading, interval, reading
from hatrack.report.words import DASH, counted, duration, number, size
from hatrack.studies.execute import Outcome
from hatrack.studies.figures import Figure
from hatrack.studies.findings import Finding

SECONDS, MEMORY = reading("seconds"), reading("memory")


@dataclass(frozen=True)
class Cell:
    """One measure of one method: its value for every seed that has one, and the paper's figure."""

    values: Mapping[int, float]
    figure: Figure | None

    @property
    def mean(self) -> float | None:
        return fmean(self.values.values()) if self.values else None

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (n − 1 below the line); None for fewer than two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def interval(self) -> Interval | None:
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
        return sum(f.result is not None for f in self.findings)


@dataclass(frozen=True)
class Table:
    """All methods on one benchmark, in the order of the study file; `benchmark` as it is shown."""

    benchmark: str
    measures: Sequence[Reading]
    rows: Sequence[Row]

    @property
    def findings(self) -> dict[str, Sequence[Finding]]:
        """The runs of every method."""
        return {row.label: row.findings for row in self.rows}

    def figures(self, measure: Reading) -> dict[str, Figure]:
        """Return the paper's figures of a measure, by method."""
        figures = {row.label: row.cells[measure.text].figure for row in self.rows}
        return {label: found for label, found in figures.items() if found is not None}

    def paper(self, measure: Reading) -> dict[str, tuple[float, float, float]]:
        """Return those that have a band, with its ends."""
        return {label: (f.mean, *f.band) for label, f in self.figures(measure).items() if f.band is not None}

    def ours(self) -> list[Row]:
        """Return the rows that are more than the paper's."""
        return [row for row in self.rows if row.findings]

    def lines(self) -> list[list[str]]:
        """Return the table as text: its heads, then a line a row, the paper's figures and the verdict beside ours."""
        printed, held = ([m for m in self.measures if of(m)] for of in (self.figures, self.paper))
        heads = [[m.text, *["paper"] * (m in printed), *["band"] * (m in held)] for m in self.measures]
        lines = [[self.benchmark, "seeds", *(head for group in heads for head in group), "time a run", "peak memory"]]
        for row in self.rows:
            line = [row.label, f"{row.finished}/{len(row.findings)}" if row.findings else "paper only"]
            for measure in self.measures:
                cell = row.cells[measure.text]
                line.append(ours(cell, measure))
                line += [printed_as(cell.figure)] if measure in printed else []
                line += [cell.verdict] if measure in held else []
            lines.append([*line, duration(row.seconds), size(row.memory)])
        return lines


def ours(cell: Cell, measure: Reading) -> str:
    """Write mean ± standard deviation."""
    mean = number(cell.mean, measure.measure)
    return mean if cell.std is None else f"{mean} ± {number(cell.std, measure.measure)}"


def printed_as(figure: Figure | None, deviation: bool = True) -> str:
    """Write a figure as the paper prints it."""
    return DASH if figure is None else str(figure if deviation else replace(figure, std=None))


def tables(outcome: Outcome) -> list[Table]:
    """Return a table a benchmark."""
    study = outcome.study
    made = []
    for benchmark in (b.label for b in study.benchmarks):
        ours = [m.label for m in study.methods]
        theirs = [label for _, where, label in study.figures if where == benchmark and label not in ours]
        labels = [*ours, *dict.fromkeys(theirs)]
        rows = [_row(outcome, benchmark, label) for label in labels]
        found = [finding.result for row in rows for finding in row.findings if finding.result is not None]
        measures = [m.on(found[0].get("tasks", ())) if found else m for m in study.measures]
        made.append(Table(study.shown(benchmark), measures, rows))
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


def _values(found: Sequence[Finding], measure: Reading) -> dict[int, float]:
    values = ((f.run.spec.seed, f.value(measure)) for f in found)
    return {seed: value for seed, value in values if value is not None}


def verdicts(made: Sequence[Table]) -> Counter[str]:
    """Count our figures that are within the paper's band, above and below it."""
    return Counter(c.verdict for t in made for row in t.rows for c in row.cells.values() if c.verdict)


def agreement(found: Counter[str]) -> str:
    """Say how our figures lie to the paper's; nothing where it has none."""
    if not found:
        return ""
    beside = ", ".join(f"{found[where]} {where}" for where in ("above", "below") if found[where])
    within = f"{found['within']} of {counted(found.total(), 'figure')} within the paper’s band"
    return within + (f", {beside} it." if beside else ".")
