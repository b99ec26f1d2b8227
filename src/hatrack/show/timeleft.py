"""How much longer a run can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic


class TimeLeft:
    """An upper bound: the pace so far, as if every task took all its epochs (most stop sooner)."""

    def __init__(self, work: Sequence[int], epochs: int, clock: Callable[[], float] = monotonic) -> None:
        self._work = work
        self._epochs = epochs
        self._clock = clock
        self._start = clock()
        self._done = 0

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return self._clock() - self._start

    def after(self, task: int, epoch: int) -> float:
        """Note that an epoch (counted from 1) of `task` is done; return the seconds left at most."""
        self._done += self._work[task]
        left = (self._epochs - epoch) * self._work[task] + self._epochs * sum(self._work[task + 1 :])
        return self.elapsed() / self._done * left
