"""What a run tells its callbacks: `on_start(plan)`, then for each task `on_epoch(epoch)` (many) and `on_task(result)`,
and `on_end(finished)` however it ends.

A callback has those of these methods that it needs (see learn/callbacks.py); when an epoch is told, its line in
metrics.jsonl is already written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatrack.loggers.logger import named
from hatrack.runs.spec import Spec


@dataclass(frozen=True)
class RunPlan:
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

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting, and the tasks' names; where the data lie on this machine is nobody's business."""
        return self.spec.model_dump(exclude={"data"}) | named(self.names)


@dataclass(frozen=True)
class TaskResult:
    """A finished task. `accuracy`: on the test samples of all tasks so far, None of those that were released.

    `seconds`: of the run so far.

    `scores`: what that is of each task, where it is no accuracy.
    """

    task: int
    name: str
    accuracy: Sequence[float | None]
    epochs: int
    capacity: float | None
    seconds: float
    scores: Sequence[str] = ("accuracy",)
