"""What a study leaves behind besides its runs: its table as CSV and LaTeX, all its runs as CSV, its page."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hatrack import atomic
from hatrack.measure import Reading
from hatrack.report.words import DASH, number
from hatrack.studies.across import Across, across
from hatrack.studies.execute import Outcome
from hatrack.studies.figures import Figure
from hatrack.studies.table import MEMORY, SECONDS, Cell, Table, tables
from hatrack.visible import visible


def write(outcome: Outcome, folder: Path) -> None:
    """Write table.csv, runs.csv, table.tex and report.html in the study's folder."""
    from hatrack.studies.page import page  # which takes seconds

    made = tables(outcome)
    over = across(outcome, made)
    atomic.write(folder / "table.csv", table_csv(made, over))
    atomic.write(folder / "runs.csv", runs_csv(outcome, folder.absolute()))
    atomic.write(folder / "table.tex", latex(made, outcome.study.title, over))
    atomic.write(folder / "report.html", page(outcome))


def table_csv(made: Sequence[Table], over: Sequence[Across] = ()) -> str:
    """Return a line a benchmark, method and measure, at full precision; the averages over benchmarks come last."""
    heads = "benchmark method measure seeds mean std half95 paper_mean paper_std band_low band_high verdict".split()
    lines = []
    for table, row, measure in ((t, r, m) for t in made for r in t.rows for m in t.measures):
        cell = row.cells[measure.text]
        half = cell.interval.half if cell.interval else None
        own = [len(cell.values), cell.mean, cell.std, half]
        lines.append([table.benchmark, row.label, measure.text, *own, *_paper(cell.figure), cell.verdict])
    averaged = ((one, line) for one in over for line in one.rows if (line.average, line.printed) != (None, None))
    for over_all, line in averaged:
        own = [None, line.average, None, None]
        lines.append([over_all.columns[-1], line.label, over_all.measure.text, *own, *_paper(line.printed), ""])
    return csv_text(heads, lines)


def _paper(figure: Figure | None) -> list[float | None]:
    """Return mean, deviation and the ends of the band."""
    return [None] * 4 if figure is None else [figure.mean, figure.std, *(figure.band or (None, None))]


def runs_csv(outcome: Outcome, folder: Path) -> str:
    """Return a line a run: what it is, its measures, where its folder is from `folder`, and why it failed, if so."""
    measures = [*outcome.study.measures, *(m for m in (SECONDS, MEMORY) if m not in outcome.study.measures)]
    lines = []
    for found in outcome.findings:
        run = found.run
        device = found.result["device"] if found.result else None
        values = [found.value(m) for m in measures]
        where = os.path.relpath(run.path, folder)
        lines.append(
            [outcome.study.shown(run.benchmark), run.method, run.spec.seed, *values, device, where, found.reason]
        )
    return csv_text(["benchmark", "method", "seed", *(m.text for m in measures), "device", "folder", "reason"], lines)


def csv_text(heads: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a table as text; a text that a spreadsheet would compute gets an apostrophe, numbers stay numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_harmless(cell) for cell in line] for line in (heads, *lines))
    return out.getvalue()


def _harmless(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    return "'" * cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) + visible(cell)


def latex(made: Sequence[Table], title: str, over: Sequence[Across] = ()) -> str:
    """Return one tabular a benchmark, ours as mean ± std, the paper's beside it, and one a measure over all of them.

    It needs no package.
    """
    tabulars = [*(_tabular(_of_benchmark(table)) for table in made), *(_tabular(_of_measure(one)) for one in over)]
    return "\n".join([f"% {' '.join(title.split())}", *tabulars]) + "\n"


def _of_benchmark(table: Table) -> list[list[str]]:
    printed = [m for m in table.measures if table.figures(m)]
    heads = [table.benchmark]
    for measure in table.measures:
        heads += [measure.text, "paper"] if measure in printed else [measure.text]
    lines = [list(map(_plain, heads))]
    for row in table.rows:
        lines.append([_plain(row.label)])
        for measure in table.measures:
            cell = row.cells[measure.text]
            lines[-1] += [_ours(cell, measure), _theirs(cell.figure)] if measure in printed else [_ours(cell, measure)]
    return lines


def _of_measure(one: Across) -> list[list[str]]:
    lines = [list(map(_plain, [one.measure.text, *one.columns]))]
    for row in one.rows:
        mean = Cell({} if row.average is None else {0: row.average}, None)
        if any(cell.values for cell in row.cells):
            lines.append([_plain(row.label), *(_ours(cell, one.measure) for cell in (*row.cells, mean))])
        figures = [*(cell.figure for cell in row.cells), row.printed]
        if any(figure is not None for figure in figures):
            lines.append([_plain(f"{row.label}, paper"), *map(_theirs, figures)])
    return lines


def _tabular(lines: Sequence[Sequence[str]]) -> str:
    first, *rest = (" & ".join(line) + r" \\" for line in lines)
    body = "\n".join([first, r"\hline", *rest])
    columns = "l" + "r" * (len(lines[0]) - 1)
    return f"\\begin{{tabular}}{{{columns}}}\n\\hline\n{body}\n\\hline\n\\end{{tabular}}"


def _ours(cell: Cell, measure: Reading) -> str:
    if cell.mean is None:
        return "--"
    if measure.measure.unit != "share":
        return _plain(number(cell.mean, measure.measure))
    text = f"${cell.mean:.3f}$" if cell.std is None else f"${cell.mean:.3f} \\pm {cell.std:.3f}$"
    return text if cell.verdict in ("", "within") else f"{text} ({cell.verdict})"


def _theirs(figure: Figure | None) -> str:
    return "--" if figure is None else f"${str(figure).replace('±', chr(92) + 'pm')}$"


def _plain(text: str) -> str:
    """Return text that LaTeX takes as it stands."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", DASH: "--"}
    special |= {"−": "$-$", "ρ": r"$\rho$", "≤": r"$\leq$", "×": r"$\times$"}
    special |= {"*": "{*}", "[": "{[}", "]": "{]}"}  # behind \\ they would be its argument
    text = visible(text)
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
