"""The one error and the warnings that users are meant to see: a single clear line each."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class HatrackError(ValueError):
    """Something was asked that cannot be done; the message says what was given, what is accepted, what to do."""


class Edited(HatrackError):
    """A file is not what was written."""


class Unverifiable(HatrackError):
    """Whether something changed could not be found out: a file is missing or cannot be read."""


class HatrackWarning(UserWarning):
    """Something was done with more caution than hoped for; the message names the part and the reason."""


class CapacityWarning(HatrackWarning):
    """Little or nothing of the network is left for the next task."""


class DivergenceWarning(HatrackWarning):
    """Training on a task has left the finite numbers, and its epoch is undone."""


class EngineWarning(HatrackWarning):
    """The engine that was asked for cannot do this; a simpler one takes over."""


def unknown(kind: str, given: str, accepted: Iterable[str]) -> HatrackError:
    """Build the error for a name that does not exist, with the nearest one that does."""
    names = sorted(accepted)
    near = get_close_matches(given, names, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return HatrackError(f"unknown {kind} {given!r}{hint} Accepted: {', '.join(names)}.")


def one_line(error: BaseException) -> str:
    """Return what an error says in one line, with its type where it says little."""
    said = " ".join(str(error).split())
    return said if " " in said else f"{type(error).__name__} {said}".strip()
