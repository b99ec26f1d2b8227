"""Whose turn it is at a network: gates, swapped tensors and its mode are there for one thread at a time.

A training step is a turn, and so is a prediction. Turns go round in the order in which threads come, so that a
training loop, which takes its next turn at once, lets those who wait pass.
"""

from __future__ import annotations

import os
from threading import Lock, RLock, get_ident
from typing import Any
from weakref import WeakSet

from hatrack.errors import HatrackError


class Turn:
    """A lock that a thread which has it may take again; use it as a context."""

    def __init__(self) -> None:
        self._door = Lock()  # who waits for the room stands in it: whoever comes later, the last owner too, comes after
        self._room = RLock()
        self._owner: int | None = None
        self._depth = 0
        self._torn = False
        _TURNS.add(self)

    def __enter__(self) -> None:
        me = get_ident()
        if self._owner == me:
            self._depth += 1
            return
        if self._torn:
            raise HatrackError(
                "this process was forked while another thread was at work with the learner, whose network is in the "
                "middle of it here; load the learner from a folder (hatrack.load), or fork while it rests."
            )
        with self._door:
            self._room.acquire()
        self._owner, self._depth = me, 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._room.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Turn:
        return Turn()  # another network, at which nobody waits

    def _forked(self) -> None:
        """Let go, in a child process, of what threads hold that are not in it."""
        self._door = Lock()
        if self._owner != get_ident():
            self._torn = self._torn or self._owner is not None
            self._room, self._owner, self._depth = RLock(), None, 0


_TURNS: WeakSet[Turn] = WeakSet()


def _forked() -> None:
    for turn in _TURNS:
        turn._forked()


if hasattr(os, "register_at_fork"):  # there is none where processes cannot fork
    os.register_at_fork(after_in_child=_forked)
