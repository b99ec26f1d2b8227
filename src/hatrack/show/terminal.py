"""Print for the user: nothing that a name holds reaches the terminal as a command to it."""

from __future__ import annotations

import sys
from contextlib import suppress

from hatrack.visible import visible


def say(text: str) -> None:
    """Print a text on standard output, in lines as they are."""
    print(visible(text, keep="\n"), flush=True)


def say_line(line: str) -> None:
    """Print one line on standard output, whatever it holds."""
    print(visible(line), flush=True)


def complain(line: str) -> None:
    """Print one line on standard error, where there is one that takes it: the exit code says the rest."""
    with suppress(OSError):
        print(f"hatrack: {visible(' '.join(line.split()))}", file=sys.stderr, flush=True)
