"""How far a task is, in one line of a terminal or a notebook that is written again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from time import monotonic
from typing import TextIO

from hatrack.learn.fit import Epoch
from hatrack.learn.history import TaskHistory
from hatrack.learn.machine.parallel import writes
from hatrack.visible import visible


class ProgressLine:
    """A callback that shows the epochs; where a line cannot be written again, only the finished task."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = monotonic) -> None:
        self._out, self._clock = out, clock
        self._began, self._shown = clock(), 0
        self._again = can_rewrite(out)

    def on_epoch(self, epoch: Epoch) -> None:
        """Show an epoch in place of the one before."""
        if self._again:
            self._write(f"{epoch.name}: epoch {epoch.epoch} of at most {epoch.epochs}, {_figures(epoch)}")

    def on_task(self, history: TaskHistory) -> None:
        """Show what came of the task."""
        tested = [f"test {history.score} {value:.4f}" for value in history.accuracy[-1:] if value is not None]
        epochs = f"{len(history.epochs)} epoch{'' if len(history.epochs) == 1 else 's'}"
        last = [_figures(epoch) for epoch in history.epochs if epoch.best][-1:]
        self._write(f"{history.name}: {', '.join([epochs, *last, *tested])}")

    def close(self) -> None:
        """Let what comes next begin on a line of its own."""
        if self._shown:
            print(file=self._out, flush=True)

    def _write(self, words: str) -> None:
        line = visible(f"{words}, {self._clock() - self._began:.0f} s")
        if self._again:
            line = line[: get_terminal_size().columns - 1]
            self._out.write("\r" + line.ljust(self._shown))
        else:
            self._out.write(line)
        self._out.flush()
        self._shown = len(line)


@contextmanager
def shown(progress: bool | None) -> Iterator[ProgressLine | None]:
    """Give the line that was asked for; None asks for one where it can be written again."""
    if progress is False or (progress is None and not can_rewrite(sys.stderr)) or not writes():
        yield None
        return
    line = ProgressLine(sys.stderr)
    try:
        yield line
    finally:
        line.close()


def can_rewrite(out: TextIO | None) -> bool:
    """Whether a line can be taken back: on a terminal, and in a notebook."""
    return out is not None and (out.isatty() or "ipykernel" in sys.modules)


def _figures(epoch: Epoch) -> str:
    return f"loss {epoch.train_loss:.4f}, validation {epoch.score} {epoch.valid_accuracy:.4f}"
