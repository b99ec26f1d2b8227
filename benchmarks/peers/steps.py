"""How a side is timed from outside: it prepares itself, then does as many steps as it is told and says how long.

Standard library only: it is read by the interpreters of all peers. A side that owns its loop calls `serve` with a
step; one whose library owns the loop calls `Gate.step` at the beginning of every batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from time import perf_counter

INPUTS, WIDTHS, CLASSES, BATCH, SAMPLES = 784, (2000, 2000), 5, 64, 6400
RATE = 0.05

# What a library prints must not be taken for an answer: answers have the real standard output to themselves.
_ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def _say(text: str) -> None:
    print(text, file=_ANSWERS, flush=True)


def serve(step: Callable[[], None]) -> None:
    """Answer every number on the standard input by the seconds that so many steps took."""
    step()
    _say("ready")
    for line in sys.stdin:
        start = perf_counter()
        for _ in range(int(line)):
            step()
        _say(str(perf_counter() - start))


class Gate:
    """Lets a foreign loop through so many batches at a time."""

    def __init__(self) -> None:
        self._left = 1  # the first batch warms up
        self._start: float | None = None

    def step(self) -> None:
        """Be called before every batch; wait for a number when those allowed are done."""
        if self._left == 0:
            _say("ready" if self._start is None else str(perf_counter() - self._start))
            line = sys.stdin.readline()
            if not line:
                os._exit(0)
            self._left, self._start = int(line), perf_counter()
        self._left -= 1
