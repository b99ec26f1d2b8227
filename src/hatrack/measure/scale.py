"""What tasks are scored by, as result.json says of each; of the tasks of version 0.1, which did not, by accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

SHARES: Final = ("accuracy", "average precision", "mean IoU")  # from 0 to 1
UP_TO_ONE: Final = (*SHARES, "R²")
ACCURACY: Final = "accuracy"


@dataclass(frozen=True)
class Scale:
    """What the scores of some tasks are called in words, and what they have in common.

    `alike`: all are of one kind, so that a mean over tasks means something; else the name is "score". `shares`: all
    lie between 0 and 1. `larger_is_better` is said of scores that are alike.
    """

    name: str = ACCURACY
    larger_is_better: bool = True
    alike: bool = True
    shares: bool = True

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The least and the greatest score there can be; None: no bound is known."""
        return (0.0 if self.shares else None, 1.0 if self.shares or self.name in UP_TO_ONE else None)

    def put(self, words: str) -> str:
        """Return words about accuracies with the score's name in its place."""
        return words.replace(ACCURACY, self.name).replace(ACCURACY.capitalize(), self.name[:1].upper() + self.name[1:])


def score_of(task: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the name of a task's score, and whether larger is better."""
    return str(task.get("score") or ACCURACY), task.get("larger_is_better") is not False


def scale(tasks: Iterable[Mapping[str, Any]]) -> Scale:
    """Return the scale of these tasks together, less those that were released."""
    found = {score_of(task) for task in tasks if not task.get("released")}
    shares = all(name in SHARES and rises for name, rises in found)
    if len(found) > 1:
        return Scale("score", alike=False, shares=shares)
    return Scale(*found.pop(), shares=shares) if found else Scale()


def kinds(tasks: Iterable[Mapping[str, Any]]) -> str:
    """List the scores of tasks that have several."""
    return ", ".join(dict.fromkeys(name for name, _ in map(score_of, tasks)))
