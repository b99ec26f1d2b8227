"""The processes that torchrun started for one command, known by what it leaves in the environment."""

from __future__ import annotations

import os

from hatrack.errors import HatrackError


def several() -> bool:
    """Return whether torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "MASTER_ADDR" in os.environ


def refuse_several(what: str) -> None:
    """Complain where torchrun started several processes for something that fills the machine by itself."""
    if several():
        raise HatrackError(f"{what} spreads its runs by itself; start it once, without torchrun.")


def speaks() -> bool:
    """Return whether this process is the one that talks to the user."""
    return not several() or os.environ.get("RANK", "0") == "0"


def place() -> int:
    """Return this process's number on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))
