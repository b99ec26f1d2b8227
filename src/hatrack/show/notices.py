"""Warnings and log lines of the library as plain lines on standard error, one each."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from hatrack.errors import HatrackWarning
from hatrack.show.terminal import complain


def show_notices() -> None:
    """Print the library's own warnings as `hatrack: …`, and say when a data set is being decoded."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, HatrackWarning):
            complain(str(message))
        else:
            before(message, category, *rest, **more)

    warnings.showwarning = show
    log = logging.getLogger("hatrack")
    if not log.handlers:
        log.addHandler(_Complaining())
        log.setLevel(logging.INFO)


class _Complaining(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())
