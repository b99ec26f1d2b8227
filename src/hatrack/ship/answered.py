"""From what a finished task is answered: its tensors, its gates, its head; asked of any method in one way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hatrack.errors import HatrackError
from hatrack.methods.base import Method
from hatrack.nets.model import Model


@dataclass(frozen=True)
class Answered:
    """The logits of some inputs, the gates they were computed under (None: none), and all tensors of the network."""

    logits: Tensor
    gates: Tensor | None
    tensors: dict[str, Tensor]


@torch.no_grad()
def answered(method: Method, x: Any, task: int, name: str) -> Answered:
    """Let a method answer for a task, and note with which gates and weights it asks its model."""
    model = method.model
    with model.unrounded(), _noted(model) as calls:
        logits = method.predict(x, task)
    if not calls and (gates := method.unit_gates(task)) is not None:  # it goes a shorter way to the same answers
        calls.append((logits, task, gates, None))
    if len(calls) != 1 or calls[0][0] is not logits or calls[0][1] != task:
        raise HatrackError(
            f"task {name!r} cannot be cut out: {method.name} computes its answers from more than one pass through the "
            f"network and its head."
        )
    _, _, gates, weights = calls[0]
    tensors = {**model.at(task).tensors(), **model.own(task), **(weights or {})}
    return Answered(logits, gates, {name: tensor.detach().clone() for name, tensor in tensors.items()})


Call = tuple[Tensor, int, Tensor | None, Mapping[str, Tensor] | None]


@contextmanager
def _noted(model: Model) -> Iterator[list[Call]]:
    calls: list[Call] = []
    logits = model.logits

    def noting(x: Any, task: int, gates: Tensor | None = None, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        calls.append((logits(x, task, gates, weights), task, gates, weights))
        return calls[-1][0]

    model.__dict__["logits"] = noting
    try:
        yield calls
    finally:
        del model.__dict__["logits"]
