"""A run's epochs and tasks as events for TensorBoard (extra `tensorboard`), in `tensorboard/` of its folder.

Epoch e of task t stands at step t·E + e, E being the epochs a task may take: so a resumed run writes where the stopped
one would have, and what it repeats replaces what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError
from hatrack.learn.fit import Epoch
from hatrack.runs.callback import Listener, Outcome, Plan

SHOWN = ("train_loss", "valid_loss", "valid_accuracy", "lr", "s", "capacity")


def required() -> Any:
    """Return torch's module for events, or say what is missing."""
    try:
        return import_module("torch.utils.tensorboard")
    except ImportError:
        raise HatrackError("--tensorboard needs TensorBoard: pip install 'hatrack[tensorboard]'.") from None


class TensorBoard:
    """A listener that writes events."""

    def __init__(self) -> None:
        self._module = required()
        self._writer: Any = None

    def planned(self, plan: Plan) -> None:
        """Note where the events go."""
        self._folder: Path = plan.path / "tensorboard"
        self._epochs = max(plan.epochs, 1)

    def epoch(self, epoch: Epoch) -> None:
        """Write what the epoch has values for."""
        step = epoch.task * self._epochs + epoch.epoch
        writer = self._opened(step)
        for name in SHOWN:
            value = getattr(epoch, name)
            if value is not None:
                writer.add_scalar(f"epoch/{name}", value, step)
        writer.flush()

    def learned(self, outcome: Outcome) -> None:
        """Write the accuracy on every task so far."""
        writer = self._opened((outcome.task + 1) * self._epochs)
        for task, accuracy in enumerate(outcome.accuracy, start=1):
            writer.add_scalar(f"test accuracy/task {task}", accuracy, outcome.task + 1)
        mean = sum(outcome.accuracy) / len(outcome.accuracy)
        writer.add_scalar("test accuracy/average", mean, outcome.task + 1)
        writer.flush()

    def _opened(self, step: int) -> Any:
        if self._writer is None:
            self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step)
        return self._writer


class Several:
    """A listener that passes everything on to several."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def planned(self, plan: Plan) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.planned(plan)

    def epoch(self, epoch: Epoch) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.epoch(epoch)

    def learned(self, outcome: Outcome) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.learned(outcome)


def with_events(listener: Listener, wanted: bool) -> Listener:
    """Return the listener, and where `wanted` one that writes events beside it."""
    return Several([listener, TensorBoard()]) if wanted else listener
