"""Methods × benchmarks, a table a measure: our means and the paper's figures, and the average over the benchmarks.

An average is one over all benchmarks: where a method lacks one, there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from hatrack.measure import Reading
from hatrack.report.builder import escape, how
from hatrack.report.builder import table as html_table
from hatrack.report.words import number
from hatrack.studies.execute import Outcome
from hatrack.studies.figures import Figure
from hatrack.studies.file import AVERAGE
from hatrack.studies.table import Cell, Table, ours, printed_as, tables


@dataclass(frozen=True)
class Line:
    """One method: its cell on every benchmark, and what the paper prints as their average."""

    label: str
    cells: Sequence[Cell]
    printed: Figure | None
    alike: bool = True

    @property
    def average(self) -> float | None:
        """The mean of our means, of benchmarks that are scored alike."""
        if not self.alike:
            return None
        means = [cell.mean for cell in self.cells if cell.mean is not None]
        return fmean(means) if len(means) == len(self.cells) else None


@dataclass(frozen=True)
class Across:
    """One measure of all methods on all benchmarks."""

    measure: Reading
    columns: Sequence[str]
    """The benchmarks, and last their average, as they are shown."""
    rows: Sequence[Line]

    def lines(self, deviations: bool = True) -> list[list[str]]:
        """Return the table as text: its heads, then a line a method, and below it the paper's where it has figures."""
        made = [[self.measure.text, *self.columns]]
        for row in self.rows:
            if any(cell.values for cell in row.cells):
                means = [number(cell.mean, self.measure.measure) for cell in row.cells]
                cells = [ours(cell, self.measure) for cell in row.cells] if deviations else means
                made.append([row.label, *cells, number(row.average, self.measure.measure)])
            figures = [*(cell.figure for cell in row.cells), row.printed]
            if any(figure is not None for figure in figures):
                made.append([f"{row.label}, paper", *(printed_as(figure, deviations) for figure in figures)])
        return made


def across(outcome: Outcome, made: Sequence[Table]) -> list[Across]:
    """Return a table for each measure; none for a study of one benchmark."""
    if len(made) < 2:
        return []
    labels = list(dict.fromkeys(row.label for table in made for row in table.rows))
    rows = [{row.label: row.cells for row in table.rows} for table in made]
    averages = {(text, label): f for (text, where, label), f in outcome.study.figures.items() if where == AVERAGE}
    columns = [*(table.benchmark for table in made), outcome.study.shown(AVERAGE)]
    found = []
    for place, measure in enumerate(outcome.study.measures):
        scored = {table.measures[place] for table in made}
        alike = len(scored) == 1
        shown = scored.pop() if alike else measure
        found.append(Across(shown, columns, _lines(measure, labels, rows, averages, alike)))
    return found


def _lines(
    measure: Reading,
    labels: Sequence[str],
    rows: Sequence[Mapping[str, Mapping[str, Cell]]],
    averages: Mapping[tuple[str, str], Figure],
    alike: bool,
) -> list[Line]:
    nothing = {measure.text: Cell({}, None)}  # of a row that is the paper's alone, where it has no figure
    return [
        Line(label, [row.get(label, nothing)[measure.text] for row in rows], averages.get((measure.text, label)), alike)
        for label in labels
    ]


def page_section(outcome: Outcome) -> str:
    """Return all such tables as HTML; nothing for a study of one benchmark."""
    body = ""
    for one in across(outcome, tables(outcome)):
        heads, *lines = one.lines()
        head = f"<h3>{escape(one.measure.title)}</h3>"
        body += head + html_table("tasks", ["Method", *heads[1:]], [_minus(line) for line in lines], len(heads) - 1)
    told = "Mean ± standard deviation over seeds; the average is of the means, where no benchmark lacks one."
    return body + how(told) if body else ""


def _minus(line: Sequence[str]) -> list[str]:
    label, *cells = line
    return [label, *(cell.replace("-", "−") for cell in cells)]
