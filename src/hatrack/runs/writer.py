"""Checkpoints written while training goes on.

On a GPU an epoch may take less time than writing a checkpoint, and several runs may share the disk. There, what is to
be saved is copied to the host, which takes milliseconds, and a thread writes it; epochs and tasks that end within PACE
times as long as the last checkpoint took to write are left out, so that the disk is never what a run waits for. A
process that is killed loses at most the current epoch, or, where epochs are shorter, what was learned in that time: a
second or less for one run on a fast disk. On a CPU every epoch is saved, and writing comes first: a thread would only
take time from training.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, Self

from hatrack.learn.learner import Learner
from hatrack.learn.state import snapshot

PACE = 10


class Writer:
    """Saves a learner to one folder; use it as a context, so that nothing is left unwritten.

    `first` is called before anything is written, where the writing happens; `about` returns what the checkpoint is to
    say of the run's other files.
    """

    def __init__(
        self, learner: Learner, folder: Path, first: Callable[[], None], about: Callable[[], dict[str, Any]] = dict
    ) -> None:
        self._learner, self._folder, self._first, self._about = learner, folder, first, about
        self._thread = ThreadPoolExecutor(1) if learner.device.type == "cuda" else None
        self._writing: Future[None] | None = None
        self._next = 0.0  # when an epoch's end is worth the next checkpoint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writing is not None and not self._writing.done()

    def save(self, last: bool = False) -> None:
        """Save the learner as it is now; in the background, where there is one, at its pace but for the `last` time."""
        if self._thread is not None and not last and (self.busy or monotonic() < self._next):
            return
        self.wait()
        write = snapshot(self._learner, self._folder, self._about())
        if self._thread is None:
            self._write(write)
        else:
            self._writing = self._thread.submit(self._write, write)

    def _write(self, write: Callable[[], None]) -> None:
        start = monotonic()
        self._first()
        self._folder.mkdir(exist_ok=True)  # not the run's folder above it, should that be gone
        write()
        self._next = start + PACE * (monotonic() - start)

    def wait(self) -> None:
        """Wait until all is on disk; raise what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
