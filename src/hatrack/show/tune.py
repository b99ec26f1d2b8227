"""Progress of a search: a line for each trial that is over, and what the library says during one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hatrack.show.terminal import complain, say_line


class TuneProgress:
    """A callback that prints plain lines."""

    def __init__(self) -> None:
        self._notices: set[str] = set()

    def trial(
        self, done: int, trials: int, number: int, value: float | None, params: Mapping[str, Any], best: bool
    ) -> None:
        reached = "given up, below the median" if value is None else f"{value:.4f}{' (best so far)' if best else ''}"
        say_line(f"[{done}/{trials}] trial {number}: {reached}; {listed(params)}")

    def failed(self, number: int, reason: str) -> None:
        complain(f"trial {number} failed: {reason}")

    def notice(self, number: int, line: str) -> None:
        """Print what is said during a trial (each line once)."""
        if line not in self._notices:
            self._notices.add(line)
            complain(f"trial {number}: {line}")


def listed(settings: Mapping[str, Any]) -> str:
    """Return settings as --set takes them, numbers cut to four digits."""
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in settings.items()}
    return ", ".join(f"{key}={value}" for key, value in shown.items())
