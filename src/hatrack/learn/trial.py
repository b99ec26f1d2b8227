"""One batch of every part of a task, tried before the task begins: what would else fail after hours of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hatrack.data.feed import Feed, Part
from hatrack.data.task import Split, Task
from hatrack.errors import HatrackError
from hatrack.nets.model import Model

LARGEST = 64  # samples of a part, at most


def try_out(model: Model, task: Task, index: int, size: int) -> None:
    """Let up to `size` samples of every part go through preparation and network; labels are looked at on the way."""
    parts = {"training": task.train, "validation": task.valid, "test": task.test}
    tried = {
        name: _prepared(task, index, name, split, size).to(model.device)
        for name, split in parts.items()
        if split is not None
    }
    if task.probes is not None:
        tried["probes'"] = task.inputs.on(model.device)(task.probes[:LARGEST].to(model.device))
    kinds = {name: f"{tuple(x.shape[1:])} {x.dtype}" for name, x in tried.items()}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{name} inputs {kind}" for name, kind in kinds.items())
        raise HatrackError(f"task {task.name!r} has {said}; bring its parts to one shape and type.")
    if model.example is not None:
        model.meet(tried["training"])
    for x in tried.values():
        with fitting(task, x):
            model.try_out(x)


def _prepared(task: Task, index: int, name: str, split: Split, size: int) -> Tensor:
    """Return the first samples of a part, prepared on the host: a device need not hold all of them yet."""
    some = split.take(torch.arange(min(size, LARGEST, len(split))))
    try:
        return next(Feed([Part(index, some, task.inputs, task.classes)], torch.device("cpu")).batches(len(some))).x
    except (RuntimeError, TypeError, IndexError) as error:
        raise HatrackError(
            f"the first {name} samples of task {task.name!r} make no batch ({first_line(error)}); bring them to one "
            f"shape and type."
        ) from error


@contextmanager
def fitting(task: Task, x: Tensor) -> Iterator[None]:
    """Say in one line that the network cannot take inputs like `x`."""
    shape = f"of shape {tuple(x.shape[1:])}, {x.dtype}"
    with _said(lambda why: f"the network cannot take the inputs of task {task.name!r} ({shape}): {why}"):
        yield


@contextmanager
def drawable(task: Task) -> Iterator[None]:
    """Say in one line that the network takes the samples, but not drawn ones, by which answers are proven."""
    with _said(
        lambda why: (
            f"the network takes the samples of task {task.name!r}, but not all values between their least and greatest "
            f"({why}); answers are proven with such values, so as to keep no sample: let forward take them."
        )
    ):
        yield


@contextmanager
def _said(line: Callable[[str], str]) -> Iterator[None]:
    try:
        yield
    except (HatrackError, torch.OutOfMemoryError, torch.AcceleratorError, MemoryError):
        raise
    except Exception as error:
        raise HatrackError(line(first_line(error))) from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, or its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
