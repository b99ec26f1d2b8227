"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hatrack.learn.fit import Epoch
from hatrack.runs.spec import Spec


@dataclass(frozen=True)
class Plan:
    """What is about to be done.

    `epochs`: of a task, at most; `work`: the training samples that an epoch of each task goes through;
    `finished`: tasks done before, by a process that was stopped (then the run is `resumed`).
    """

    spec: Spec
    path: Path
    names: Sequence[str]
    epochs: int
    work: Sequence[int]
    finished: int
    resumed: bool


@dataclass(frozen=True)
class Outcome:
    """A finished task. `accuracy`: on the test samples of all tasks so far; `seconds`: of the run so far."""

    task: int
    name: str
    accuracy: Sequence[float]
    epochs: int
    capacity: float | None
    seconds: float


class Listener(Protocol):
    """Called by the runner, in this order: planned, then for each task epoch (many) and learned."""

    def planned(self, plan: Plan) -> None:
        """Note what is about to be done."""

    def epoch(self, epoch: Epoch) -> None:
        """Note a finished epoch; its line in metrics.jsonl is already written."""

    def learned(self, outcome: Outcome) -> None:
        """Note a finished task."""
