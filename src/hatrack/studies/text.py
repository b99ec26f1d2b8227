"""The study's table on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hatrack.studies.across import across
from hatrack.studies.execute import Outcome
from hatrack.studies.order import order
from hatrack.studies.ranking import lines, ranking
from hatrack.studies.table import Table, agreement, tables, verdicts
from hatrack.visible import visible


def summary(outcome: Outcome, folder: Path) -> str:
    """Return a table a benchmark and over all, the ranking, what diverged, what failed and where the files are."""
    made = tables(outcome)
    blocks = [_title(outcome), *(aligned(table.lines()) for table in made)]
    blocks += [aligned(one.lines(deviations=False)) for one in across(outcome, made)]
    blocks += [*(_ranking(table) for table in made), agreement(verdicts(made)), str(order(made))]
    blocks += [_diverged(outcome), _failures(outcome), _files(folder)]
    return "\n\n".join(block for block in blocks if block)


def _title(outcome: Outcome) -> str:
    """Name the study, and what the command changed of its file: a part of it is not the paper's experiment."""
    study = outcome.study
    return study.title + (f" (changed: {'; '.join(study.changes)})" if study.changes else "")


def _ranking(table: Table) -> str:
    measure = table.measures[0]
    places = ranking(table, measure)
    if len(places) < 2 or not any(place.test for place in places):
        return ""
    heads = [f"{table.benchmark}, by {measure.text}", "mean", "seeds", "to the first", "95 %", "p (t)", "p (Wilcoxon)"]
    return aligned([heads, *lines(places, measure)])


def _diverged(outcome: Outcome) -> str:
    if not outcome.diverged:
        return ""
    lines = [f"  {path.name}: in {lost}" for path, lost in outcome.diverged.items()]
    return "\n".join(["Training diverged (see report.html of the run):", *lines])


def _failures(outcome: Outcome) -> str:
    if not outcome.reasons:
        return ""
    names: dict[str, list[str]] = {}  # by what went wrong, which may be the same for all
    for path, reason in outcome.reasons.items():
        names.setdefault(reason, []).append(path.name)
    lines = []
    for reason, (first, *others) in names.items():
        lines.append(f"  {first} and {len(others)} more: {reason}" if others else f"  {first}: {reason}")
    return "\n".join(["Failed (the same command tries them again):", *lines])


def _files(folder: Path) -> str:
    about = {
        "report.html": "the report: open it in a browser",
        "table.csv": "the table",
        "runs.csv": "every run, with its folder",
        "table.tex": "the table for LaTeX",
    }
    return "\n".join([f"Files in {folder}:", *(f"  {name:<12} {what}" for name, what in about.items())])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Set the columns under each other, the first to the left and the others to the right."""
    lines = [list(map(visible, line)) for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
