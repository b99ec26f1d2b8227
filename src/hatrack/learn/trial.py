"""One batch of every part of a task, tried before the task begins: what would else fail after hours of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor

from hatrack.data.augmenting import Augmentation
from hatrack.data.feed import Batch, Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.nets.head import new_head, width_of
from hatrack.nets.model import Model
from hatrack.targets import Target
from hatrack.tree import leaves, mapped, sample


class Named(Protocol):
    """A task, of which a message says the name."""

    @property
    def name(self) -> str: ...


LARGEST = 64  # samples of a part, at most


def try_out(model: Model, task: Task, index: int, size: int) -> tuple[tuple[int, ...], Batch]:
    """Let up to `size` samples of every part go through preparation and network; targets are looked at on the way.

    Returns the shape of a sample's features, and the first samples.
    """
    parts = {"training": task.train, "validation": task.valid, "test": task.test}
    batches = {name: _prepared(task, index, name, part, size) for name, part in parts.items() if part is not None}
    tried = {name: mapped(lambda part: part.to(model.device), batch.x) for name, batch in batches.items()}
    if task.probes is not None:
        some = mapped(lambda part: part[:LARGEST].to(model.device), task.probes)
        tried["probes'"] = task.inputs.on(model.device)(some)
    kinds = {name: sample(x) for name, x in tried.items()}
    if len(set(kinds.values())) > 1 and not task.varies:
        said = ", ".join(f"{name} inputs {kind}" for name, kind in kinds.items())
        raise HatrackError(f"task {task.name!r} has {said}; bring its parts to one shape and type.")
    if model.example is not None:
        with fitting(task, tried["training"]):
            model.meet(tried["training"])
    if task.augment is not None:
        tried["augmented"] = _augmented(task, task.augment, index, model.device, size)
    found: list[tuple[int, ...]] = []
    for x in tried.values():
        with fitting(task, x):
            found.append(model.try_out(x))
    return found[0], batches["training"]


def try_target(task: Task, target: Target, features: tuple[int, ...], batch: Batch) -> None:
    """Compute loss and score of answers to the first samples, before hours of training have led to them."""
    head = new_head(width_of(features, target.units_axis), target.outputs, torch.device("cpu"), target.units_axis)
    weight, bias = torch.zeros_like(head.weight), torch.zeros_like(head.bias)
    # Not a call of the module: hooks on all modules would write to the network, which no lock holds yet.
    output = head.computed(torch.zeros(len(batch.y), *features), weight, bias).requires_grad_()
    shapes = f"answers of shape {tuple(output.shape)} and targets of shape {tuple(batch.y.shape)}"

    with _said(lambda why: f"task {task.name!r}: the loss of {target.name} fails on {shapes}: {why}"):
        loss = target.trained(output, batch.y, batch.weights)
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        raise HatrackError(
            f"task {task.name!r}: the loss of {target.name} must be one figure that the answers have a gradient of, "
            f"got {_figure(loss)} for {shapes}."
        )
    named = target.judged().score
    with _said(lambda why: f"task {task.name!r}: the score {named!r} fails on {shapes}: {why}"), catch_warnings():
        simplefilter("ignore")  # of so few samples a metric may find a class missing
        score = target.scored()
        score.update(target.answer(output.detach()), batch.y)
        figure = score.compute()
    with _said(lambda why: f"task {task.name!r}: the score {named!r} must be one figure, got {_figure(figure)}"):
        float(figure)


def _figure(given: Any) -> str:
    return f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)[:99]


def _augmented(task: Task, augment: Augmentation, index: int, device: torch.device, size: int) -> Any:
    """Return the first training samples, augmented and prepared; say which task's augmentation does not fit."""
    some = task.train.begin(min(size, LARGEST))
    try:
        raw = next(Feed([Part(index, some, Inputs(ids=task.inputs.ids), task.target)], device).batches(LARGEST))
        augment.settle(raw.x, raw.y)
        whole = Feed([Part(index, some, task.inputs, task.target, augment)], device)
        batch = next(whole.batches(LARGEST, torch.Generator()))
        task.target.read(batch.y, f"targets that augment {augment} returns")
    except HatrackError as error:
        raise HatrackError(f"task {task.name!r}: {error}") from error
    return batch.x


def _prepared(task: Task, index: int, name: str, split: Split, size: int) -> Batch:
    """Return the first samples of a part, prepared on the host: a device need not hold all of them yet."""
    some = split.begin(min(size, LARGEST))
    if len(some) == 0:
        raise HatrackError(
            f"task {task.name!r}: its {name} part gives no sample when it is gone through once more; let __iter__ "
            f"begin anew every time."
        )
    try:
        return next(Feed([Part(index, some, task.inputs, task.target)], torch.device("cpu")).batches(len(some)))
    except HatrackError as error:
        if repr(task.name) in str(error):
            raise
        raise HatrackError(f"task {task.name!r}: {error}") from error
    except (RuntimeError, TypeError, IndexError) as error:
        raise HatrackError(
            f"the first {name} samples of task {task.name!r} make no batch ({first_line(error)}); bring them to one "
            f"shape and type, or give Task(..., collate=f), which pads them."
        ) from error


def with_ids(model: Model, task: Task) -> Task:
    """Return the task; its bytes as numbers of words where the network takes them only so."""
    if task.inputs.ids is not None:
        return task
    try:
        some = task.train.first(1)
    except Exception:  # which is said when a batch is tried
        return task
    if not any(part.dtype == torch.uint8 for part in leaves(some)) or not task.inputs.plain:
        return task

    def taken(ids: bool) -> bool:
        inputs = replace(task.inputs, ids=ids)
        try:
            model.try_out(inputs.on(model.device)(mapped(lambda part: part.to(model.device), some)))
        except Exception:  # of which kind depends on the layer
            return False
        return True

    return task.with_inputs(replace(task.inputs, ids=True)) if not taken(ids=False) and taken(ids=True) else task


@contextmanager
def fitting(task: Named, x: Any) -> Iterator[None]:
    """Say in one line that the network cannot take inputs like `x`."""
    with _said(lambda why: f"the network cannot take the inputs of task {task.name!r} ({sample(x)}): {why}"):
        yield


@contextmanager
def drawable(task: Named) -> Iterator[None]:
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
