"""Python imports this by itself in every process of the storm: it counts steps on files, and dies at a given one.

A step is what changes a file or a folder below STORM_WATCHED. Workers that a command starts count their own; the first
process that arrives at STORM_STEP dies there, by SIGKILL before it or, STORM_DELAY seconds after, by the kernel's timer
(SIGALRM, which ends a process as abruptly): so a kill also falls into the middle of a write. STORM_COUNTS is a folder
where a process leaves a byte a step.
"""

from __future__ import annotations

import os
import signal
import sys

WRITES = os.O_WRONLY | os.O_RDWR
STEPS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def install() -> None:
    """Count from now on, if this process is meant to."""
    watched = os.environ.get("STORM_WATCHED")
    if watched is None:
        return
    counts, fired = os.environ.get("STORM_COUNTS"), os.environ.get("STORM_FIRED")
    at, delay = int(os.environ.get("STORM_STEP", "0")), float(os.environ.get("STORM_DELAY", "0"))
    steps = 0

    def step(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal steps
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            named = arguments[:1]  # a mode such as "ab" is a text too
        elif event in STEPS:
            named = arguments[:2]
        else:
            return
        paths = [os.path.abspath(os.fsdecode(a)) for a in named if isinstance(a, str | bytes | os.PathLike)]
        if not any(path.startswith(watched) for path in paths):
            return
        steps += 1
        if counts is not None:
            with open(os.path.join(counts, str(os.getpid())), "ab") as file:
                file.write(b".")
        if steps == at and fired is not None and _first(fired):
            if delay:
                signal.setitimer(signal.ITIMER_REAL, delay)
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)


def _first(fired: str) -> bool:
    """Leave the mark that there was a kill; return whether there was none before."""
    try:
        os.close(os.open(fired, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


install()
