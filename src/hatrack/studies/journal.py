"""Optuna's journal of a search, made fit to be opened again whatever stopped the process that wrote it.

Only for who holds the lock of the search's folder: nobody else writes then, so that a lock of Optuna's is a leftover.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from hatrack.errors import HatrackError


def mend(journal: Path) -> None:
    """Take away what a process killed in the middle of a write leaves behind; refuse what none can have written."""
    # Optuna would wait for a lock, without end if the path is relative; one that it was giving up has a longer name.
    for left in journal.parent.glob(f"{journal.name}.lock*"):
        left.unlink()
    if not journal.exists():
        return
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):  # Optuna would append to the piece; the trial that it was about is tried again
        os.truncate(journal, whole)
    for number, line in enumerate(content[:whole].splitlines(), start=1):
        if not _is_record(line):
            raise HatrackError(
                f"{journal}, line {number}, is not a record of Optuna's (a JSON object with an op_code); remove the "
                f"line, or choose another --out."
            )


def _is_record(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and "op_code" in record
