"""Write all that a study leaves behind besides its runs."""

from __future__ import annotations

from pathlib import Path

from hatrack import atomic
from hatrack.studies.carry import Outcome
from hatrack.studies.export import latex, runs_csv, table_csv
from hatrack.studies.page import page
from hatrack.studies.table import tables


def write(outcome: Outcome, folder: Path) -> None:
    """Write table.csv, runs.csv, table.tex and report.html in the study's folder."""
    made = tables(outcome)
    atomic.write(folder / "table.csv", table_csv(made))
    atomic.write(folder / "runs.csv", runs_csv(outcome, folder.absolute()))
    atomic.write(folder / "table.tex", latex(made, outcome.study.title))
    atomic.write(folder / "report.html", page(outcome))
