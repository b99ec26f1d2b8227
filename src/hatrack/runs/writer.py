"""Checkpoints written while training goes on.

On a GPU an epoch may take less time than writing a checkpoint. There, what is to be saved is copied to the host, which
takes milliseconds, and a thread writes it; the next checkpoint waits for it. A process that is killed meanwhile goes
on from the checkpoint before, as if it had been killed a moment earlier. On a CPU the thread would only take time from
training, so that writing comes first there.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from hatrack.learn.learner import Learner
from hatrack.learn.state import snapshot


class Writer:
    """Saves a learner to one folder; use it as a context, so that nothing is left unwritten."""

    def __init__(self, learner: Learner, folder: Path) -> None:
        self._learner, self._folder = learner, folder
        self._thread = ThreadPoolExecutor(1) if learner.device.type == "cuda" else None
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    def save(self) -> None:
        """Save the learner as it is now, in the background where there is one."""
        self.wait()
        write = snapshot(self._learner, self._folder)
        if self._thread is None:
            write()
        else:
            self._writing = self._thread.submit(write)

    def wait(self) -> None:
        """Wait until all is on disk; raise what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
