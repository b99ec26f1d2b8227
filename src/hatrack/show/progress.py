"""Choose how progress is shown: redrawn on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hatrack.runs.callback import Listener
from hatrack.show.plain import PlainProgress


@contextmanager
def progress() -> Iterator[Listener]:
    """Give a listener for the standard output that there is."""
    if not sys.stdout.isatty():
        yield PlainProgress()
        return
    from rich.console import Console

    from hatrack.show.live import LiveProgress

    with LiveProgress(Console(highlight=False)) as live:
        yield live
