"""The processes that torchrun started for one command, known by what it leaves in the environment."""

from __future__ import annotations

import os

from hatrack.errors import HatrackError


def several() -> bool:
    """Return whether torchrun started this process as one of several.

    It says how many there are, which one this is and where they meet; a part of that is left over from something else.
    """
    size = _number("WORLD_SIZE")
    return size > 1 and 0 <= _number("RANK") < size and "MASTER_ADDR" in os.environ


def refuse_several(what: str) -> None:
    """Complain where torchrun started several processes for something that fills the machine by itself."""
    if several():
        raise HatrackError(f"{what} spreads its runs by itself; start it once, without torchrun.")


def speaks() -> bool:
    """Return whether this process is the one that talks to the user."""
    return not several() or _number("RANK") == 0


def local_rank() -> int:
    """Return this process's number on its machine."""
    return max(_number("LOCAL_RANK"), 0)


def _number(name: str) -> int:
    """Return the whole number in an environment variable, −1 where it holds none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else -1
