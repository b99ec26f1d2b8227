"""Scores of a task's answers; what one of the user's raises, or gives that is no figure, is said in a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite

from torch import Tensor

from hatrack.errors import HatrackError, one_line
from hatrack.targets import Target


class Scoring:
    """Adds up the score of a target; `name`: the task's, where it is known here."""

    def __init__(self, target: Target, name: str | None = None) -> None:
        self._target = target
        self._where = "" if name is None else f"task {name!r}: "
        self._score = target.scored()

    def add(self, output: Tensor, y: Tensor) -> None:
        """Count a batch: what the head gives, and the targets."""
        with self._said():
            self._score.update(self._target.answer(output), y)

    def add_answer(self, answer: Tensor, y: Tensor) -> None:
        """Count a batch: what predict gives, and the targets."""
        with self._said():
            self._score.update(answer, y)

    def figure(self) -> float:
        """Return the score of all batches."""
        with self._said():
            found = float(self._score.compute())
        if not isfinite(found):
            raise HatrackError(f"{self._where}the score {self._named!r} must be a finite figure, got {found}.")
        return found

    @property
    def _named(self) -> str:
        return self._target.judged().score

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (HatrackError, MemoryError):
            raise
        except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
            raise HatrackError(f"{self._where}the score {self._named!r} fails: {one_line(error)}") from error
