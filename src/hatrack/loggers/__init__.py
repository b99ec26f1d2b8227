"""Loggers: callbacks that write a learner's or a run's figures to TensorBoard, MLflow, W&B or trackio.

logger.py says what is written and when; the others say how, one file a tool, each imported when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hatrack.errors import unknown
from hatrack.loggers.logger import Logger
from hatrack.loggers.mlflow import MLflow
from hatrack.loggers.tensorboard import TensorBoard
from hatrack.loggers.trackio import Trackio
from hatrack.loggers.wandb import WandB

__all__ = ["LOGGERS", "Logger", "MLflow", "TensorBoard", "Trackio", "WandB"]

LOGGERS: dict[str, type[Logger]] = {kind.extra: kind for kind in (TensorBoard, MLflow, WandB, Trackio)}


def required(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of loggers, each once; refuse one that there is not, or of which the package is not there."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        LOGGERS[name].required()
    return tuple(dict.fromkeys(names))


def beside(callback: object, names: Sequence[str], folder: Path) -> list[object]:
    """Return the callback, and beside it the loggers of these names over the run in `folder`."""
    return [callback, *(LOGGERS[name](folder) for name in names)]
