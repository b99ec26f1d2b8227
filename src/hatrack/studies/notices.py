"""What the library says beside a result: its warnings and the lines of its log, such as that a data set is decoded."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hatrack.errors import HatrackWarning


@contextmanager
def notices_to(tell: Callable[[str], Any]) -> Iterator[None]:
    """Let `tell` hear them, one line each, while the context lasts; other warnings go where they went."""

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    log, handler = logging.getLogger("hatrack"), Forward()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            before = warnings.showwarning

            def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
                if issubclass(category, HatrackWarning):
                    tell(" ".join(str(message).split()))
                else:
                    before(message, category, *rest, **more)

            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(handler)
