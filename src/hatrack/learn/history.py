"""What has become of every task: its epochs, its time, and how it and those before it did in the test after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, nan
from typing import Any

from hatrack import seal
from hatrack.data.task import Task
from hatrack.learn.fit import Epoch

FIGURES = ("train_loss", "valid_loss", "valid_accuracy")  # which may be no numbers; JSON has none of those


@dataclass
class TaskHistory:
    """What learning a task was.

    samples   that each part of it has
    epochs    all that are over, in order
    seconds   that they took, the end of the task included
    accuracy  after it, on the test part of every task so far; None where there is none, or none at hand. Of what is no
              classification, whatever it is scored by
    score     what its own is called
    released  whether the task is gone; then all of the above that is about itself is, too
    """

    name: str
    samples: dict[str, int] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list, repr=False)
    seconds: float = 0.0
    accuracy: list[float | None] = field(default_factory=list)
    score: str = "accuracy"
    released: bool = False

    @classmethod
    def of(cls, task: Task) -> TaskHistory:
        """Return that of a task which begins."""
        parts = {"train": task.train, "valid": task.valid, "test": task.test}
        sizes = {name: len(part) for name, part in parts.items() if part is not None}
        return cls(task.name, sizes, score=task.target.judged().score)


def dumps(history: Sequence[TaskHistory]) -> str:
    """Return the text of history.json, with its digest."""
    tasks = [asdict(known) | {"epochs": [_plain(epoch) for epoch in known.epochs]} for known in history]
    return seal.sealed(json.dumps({"schema": 1, "tasks": tasks, **seal.BLANK}))


def loads(text: str) -> list[TaskHistory]:
    """Return what `dumps` was given."""
    return [
        TaskHistory(**known | {"epochs": [_epoch(fields) for fields in known["epochs"]]})
        for known in json.loads(text)["tasks"]
    ]


def _plain(epoch: Epoch) -> dict[str, Any]:
    fields = asdict(epoch)
    return fields | {name: None for name in FIGURES if not isfinite(fields[name])}


def _epoch(fields: dict[str, Any]) -> Epoch:
    return Epoch(**fields | {name: nan for name in FIGURES if fields[name] is None})


def matched(stored: Sequence[TaskHistory], names: Sequence[str], finished: int, epochs: int) -> list[TaskHistory]:
    """Return a history for every task of a learner that is loaded: as it is stored, or one that knows the name alone.

    A process that was killed between two files may have stored more than the learner has, of whose task in progress
    so many `epochs` are over.
    """
    found = []
    for t, name in enumerate(names):
        known = stored[t] if t < len(stored) and stored[t].name == name else TaskHistory(name)
        if t >= finished:
            known.accuracy, known.epochs = [], known.epochs[:epochs]
        elif len(known.accuracy) != t + 1:
            known.accuracy = [None] * (t + 1)
        found.append(known)
    return found
