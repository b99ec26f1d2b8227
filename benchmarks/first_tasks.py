"""The first two tasks of split-cifar10: what a study takes that has little time, as `first_tasks.py:cifar`."""

from __future__ import annotations

from hatrack import Task, tasks


def cifar(seed: int, data: str | None = None) -> list[Task]:
    """Return them."""
    return tasks("split-cifar10", seed=seed, data=data)[:2]
