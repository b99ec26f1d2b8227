"""The report of a run: one self-contained HTML page, made from nothing but the files the run wrote."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write"]


def write(run_folder: Path) -> Path:
    """Write `report.html` into a finished run's folder, in place of an older one, and return its path."""
    from hatrack import atomic
    from hatrack.report.page import page
    from hatrack.report.read import read

    target = run_folder / "report.html"
    atomic.write(target, page(read(run_folder)))
    return target
