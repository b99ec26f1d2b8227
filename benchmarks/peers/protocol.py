"""What both sides are told: the methods, their settings, the budget. Imports nothing but the standard library,
because it is read by two interpreters: hatrack's and the peer's.

Both sides train the same MLP, from the same weights, on the same batches in the same order, by plain SGD at one
learning rate, and keep the weights of the last epoch. What is left to differ is the method.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

WIDTHS = (400, 400)
CLASSES = 2
TASKS = 5
RETRAIN_SHARE = 1 / 3  # of PackNet's epochs, after pruning


@dataclass(frozen=True)
class Budget:
    """How long both sides train, and on how much."""

    train: int = 2000
    epochs: int = 10
    batch: int = 64
    lr: float = 0.1

    def tasks_file(self, folder: Path, seed: int) -> Path:
        """Return where the exported tasks of a seed lie."""
        return folder / f"tasks-{seed}-{self.train}-{self.epochs}.npz"

    @property
    def retrain(self) -> int:
        """PackNet's epochs after pruning, out of all."""
        return max(1, round(self.epochs * RETRAIN_SHARE))


@dataclass(frozen=True)
class Side:
    """A method as one side calls it: what is fixed, and the setting that is chosen, with its candidates.

    Several knobs are turned together (PackNet's two shares).
    """

    name: str
    fixed: dict[str, Any] = field(default_factory=dict)
    knobs: tuple[str, ...] = ()
    candidates: tuple[float, ...] = ()

    def settings(self) -> list[dict[str, Any]]:
        """Return every setting to be tried."""
        return [{**self.fixed, **dict.fromkeys(self.knobs, value)} for value in self.candidates] or [self.fixed]


@dataclass(frozen=True)
class Contest:
    """One method on both sides."""

    ours: Side
    theirs: Side


@dataclass(frozen=True)
class Job:
    """One training run of one side."""

    name: str
    settings: dict[str, Any]
    seed: int
    budget: Budget

    def path(self, folder: Path) -> Path:
        """Return the file of the run's outcome: another setting, another file."""
        text = json.dumps(asdict(self), sort_keys=True)
        return folder / f"{self.name}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def arguments(about: str | None) -> argparse.Namespace:
    """Return what the driver told a side: the jobs, where the tasks lie, where outcomes go."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True, help="folder of the exported .npz files")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def read_jobs(path: Path) -> list[Job]:
    """Return the jobs that the driver has listed."""
    return [Job(**{**job, "budget": Budget(**job["budget"])}) for job in json.loads(path.read_text())]


def write_outcome(job: Job, folder: Path, test: list[list[float]], valid: list[float], seconds: float) -> None:
    """Store a finished run: test accuracy after each task (a row), final validation accuracy of every task."""
    outcome = {"job": asdict(job), "test": test, "valid": valid, "seconds": seconds}
    path = job.path(folder)
    path.with_suffix(".tmp").write_text(json.dumps(outcome))
    path.with_suffix(".tmp").replace(path)
