"""Two tasks in two processes' worth of learners, told to loggers: what every tool must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import hatrack
from hatrack.learn.history import TaskHistory
from hatrack.loggers import Logger

EPOCHS = 3
Points = dict[str, list[tuple[int, float]]]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU())


def learn(folder: Path, logger: Callable[[Path], Logger]) -> list[TaskHistory]:
    """Learn a task, save, load, learn another; each with a logger of its own over one folder."""
    tasks = hatrack.tasks("split-digits", seed=0)
    learner = hatrack.Learner(net(), epochs=EPOCHS, device="cpu")
    with logger(folder / "log") as first:
        learner.learn(tasks[0], callback=first)
    learner.save(folder / "saved")
    learner = hatrack.load(folder / "saved", net())
    learner.remember(tasks[0])
    with logger(folder / "log") as second:
        learner.learn(tasks[1], callback=second)
    return learner.history


def expected(history: list[TaskHistory]) -> Points:
    """Say, from the histories alone, what is to be found at which step."""
    points: Points = {}
    for t, task in enumerate(history):
        for e, epoch in enumerate(task.epochs, start=1):
            figures = {"train_loss": epoch.train_loss, "valid_loss": epoch.valid_loss, "lr": epoch.lr}
            figures |= {"valid_score": epoch.valid_accuracy, "s": epoch.s, "capacity": epoch.capacity}
            for name, value in figures.items():
                points.setdefault(f"epoch/{name}", []).append((t * EPOCHS + e, value))
        scores = task.accuracy
        for n, score in enumerate(scores):
            points.setdefault(f"score/task {n + 1}", []).append(((t + 1) * EPOCHS, score))
        points.setdefault("score/average", []).append(((t + 1) * EPOCHS, sum(scores) / len(scores)))
    return points


SETTINGS = {"method": "hat", "method.lr": 0.05, "net": "Sequential", "epochs": EPOCHS, "batch_size": 64, "seed": 0}
NAMES = {"task 1": "digits 0-1", "task 2": "digits 2-3"}
