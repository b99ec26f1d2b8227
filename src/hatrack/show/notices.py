"""Warnings and log lines of the library as plain lines on standard error, one each."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from hatrack.errors import HatrackWarning


def show_notices() -> None:
    """Print the library's own warnings as `hatrack: …`, and say when a data set is being decoded."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, HatrackWarning):
            print(f"hatrack: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            before(message, category, *rest, **more)

    warnings.showwarning = show
    log = logging.getLogger("hatrack")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("hatrack: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
