"""Why a request gets no answer."""

from __future__ import annotations

from hatrack.errors import HatrackError


class Refused(HatrackError):
    """One line for the client, and HTTP's number for it."""

    def __init__(self, line: str, status: int = 400) -> None:
        super().__init__(line)
        self.status = status


def crowded() -> Refused:
    """Build the answer to more than the server holds at a time."""
    return Refused("the server is busy; ask again in a moment.", 503)
