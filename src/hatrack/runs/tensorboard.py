"""A run's epochs and tasks as events for TensorBoard (extra `tensorboard`), in `tensorboard/` of its folder.

Epoch e of task t stands at step t·E + e, E being the epochs a task may take: so a resumed run writes where the stopped
one would have, and what it repeats replaces what was there.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from hatrack.errors import HatrackError
from hatrack.learn.fit import Epoch
from hatrack.runs.callback import RunPlan, TaskResult

SHOWN = ("train_loss", "valid_loss", "valid_accuracy", "lr", "s", "capacity")


def required() -> Any:
    """Return torch's module for events, or say what is missing."""
    try:
        return import_module("torch.utils.tensorboard")
    except ImportError:
        raise HatrackError("--tensorboard needs TensorBoard: pip install 'hatrack[tensorboard]'.") from None


class TensorBoard:
    """A callback that writes events."""

    def __init__(self) -> None:
        self._module = required()
        self._writer: Any = None

    def on_start(self, plan: RunPlan) -> None:
        self._folder: Path = plan.path / "tensorboard"
        self._epochs = max(plan.epochs, 1)

    def on_epoch(self, epoch: Epoch) -> None:
        step = epoch.task * self._epochs + epoch.epoch
        writer = self._opened(step)
        for name in SHOWN:
            value = getattr(epoch, name)
            if value is not None:
                writer.add_scalar(f"epoch/{name}", value, step)
        writer.flush()

    def on_task(self, result: TaskResult) -> None:
        writer = self._opened((result.task + 1) * self._epochs)
        scores = result.scores if len(result.scores) == len(result.accuracy) else ["accuracy"] * len(result.accuracy)
        for task, (accuracy, score) in enumerate(zip(result.accuracy, scores, strict=True), start=1):
            writer.add_scalar(f"test {score}/task {task}", accuracy, result.task + 1)
        if len(set(scores)) == 1:
            writer.add_scalar(f"test {scores[0]}/average", fmean(result.accuracy), result.task + 1)
        writer.flush()

    def _opened(self, step: int) -> Any:
        if self._writer is None:
            self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step)
        return self._writer


def with_events(callback: object, wanted: bool) -> list[object]:
    """Return the callback, and where `wanted` one that writes events beside it."""
    return [callback, TensorBoard()] if wanted else [callback]
