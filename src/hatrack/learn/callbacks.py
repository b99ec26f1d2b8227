"""Who is told of epochs and tasks: any object that has one or more of these methods.

on_begin(learner)   a task begins, or goes on
on_epoch(epoch)     an epoch of it is over
on_task(history)    it is learned and tested
"""

from __future__ import annotations

from collections.abc import Sequence

from hatrack.errors import HatrackError

MOMENTS = ("on_begin", "on_epoch", "on_task")


def refuse_deaf(callback: object) -> None:
    """Refuse a callback that would never be called."""
    if not any(callable(getattr(callback, moment, None)) for moment in MOMENTS):
        named = " or ".join(MOMENTS)
        raise HatrackError(f"callback must be an object with {named}, got {type(callback).__name__}.")


def tell(callbacks: Sequence[object], moment: str, what: object) -> None:
    """Call each one's method of that name, where it has one."""
    for callback in callbacks:
        hear = getattr(callback, moment, None)
        if hear is not None:
            hear(what)
