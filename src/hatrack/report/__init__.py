"""The report of a run: one self-contained HTML page, made from nothing but the files the run wrote."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from threading import Thread

__all__ = ["get_ready", "write"]


def get_ready() -> Thread:
    """Import what drawing takes, which is seconds, in a thread: while a GPU works, the host has time for it."""
    thread = Thread(target=import_module, args=("hatrack.report.page",), daemon=True)
    thread.start()
    return thread


def write(run_folder: Path) -> Path:
    """Write `report.html` into a finished run's folder, in place of an older one, and return its path."""
    from hatrack import atomic
    from hatrack.report.exports import read_exports
    from hatrack.report.page import page
    from hatrack.report.read import read

    target = run_folder / "report.html"
    atomic.write(target, page(read(run_folder), read_exports(run_folder)))
    return target
