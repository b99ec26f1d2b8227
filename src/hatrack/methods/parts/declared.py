"""What a method holds, declared once: saving, resuming, going back to the best epoch and agreement of several
processes follow from it.

    masks: list[Tensor] = kept("mask", bits=True)      what finished tasks have left: mask/0, mask/1, …
    owner: dict[str, Tensor] = progress("owner")       changes while a task is learned, and is not trained
    path: dict[str, Tensor] = along("path")            belongs to the weights: goes back with the best epoch's
    taken: Tensor = scratch()                          made anew from the others when a task or a phase begins
    anchor: Anchor = part(Anchor)                      holds more of all that

A field is a tensor or None, tensors by name, a list with a tensor a task, or a list with tensors by name a task. What
is `progress` or `along` is refilled in place; what is `kept` may be replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_origin, get_type_hints

import torch
from torch import Tensor


class Declaration(NamedTuple):
    """How a field is called in what is saved, and what becomes of it."""

    key: str
    kept: bool = False
    progress: bool = False
    along: bool = False
    bits: bool = False  # booleans are stored as bytes, 0 or 1
    host: bool = False  # stays in the host's memory
    answers: bool = False  # answers are computed with it: it counts as parameters


def _field(declaration: Declaration) -> Any:
    return dataclasses.field(init=False, repr=False, compare=False, metadata={"declared": declaration})


def kept(key: str, *, bits: bool = False, host: bool = False, answers: bool = False, progress: bool = False) -> Any:
    """Declare what finished tasks leave in the method; `progress`: it changes while a task is learned, too."""
    return _field(Declaration(key, kept=True, progress=progress, bits=bits, host=host, answers=answers))


def progress(key: str) -> Any:
    """Declare what changes while a task is learned without being trained."""
    return _field(Declaration(key, progress=True))


def along(key: str) -> Any:
    """Declare what belongs to the weights: with those of the best epoch it comes back, too."""
    return _field(Declaration(key, along=True))


def part(kind: type[Part]) -> Any:
    """Declare a part that needs nothing to begin with."""
    return dataclasses.field(init=False, repr=False, compare=False, metadata={"part": kind})


def scratch() -> Any:
    """Declare what is made anew when a task or a phase begins, out of what else there is."""
    return _field(Declaration(""))


@dataclass
class Holder:
    """Holds declared fields, and parts that hold more."""

    def declare(self) -> None:
        """Give every declared field its empty value: no tensor, none by name, or none of any task."""
        for name, _, form in _declared(type(self)):
            setattr(self, name, form() if form in (dict, list) else None)
        for field in dataclasses.fields(self):
            if "part" in field.metadata:
                setattr(self, field.name, field.metadata["part"]())

    @property
    def parts(self) -> list[Part]:
        """The parts that this is composed of, in the order in which they were put on."""
        return [value for value in vars(self).values() if isinstance(value, Part)]

    def state(self) -> dict[str, Tensor]:
        """Return what finished tasks have left, by name."""
        return {
            key: tensor.to(torch.uint8) if declared.bits and tensor.dtype == torch.bool else tensor
            for declared, key, tensor in self._held()
            if declared.kept
        }

    def in_progress(self) -> dict[str, Tensor]:
        """Return what changes while a task is learned, less what is trained, by name."""
        return {key: t for declared, key, t in self._held() if declared.progress and not t.requires_grad}

    def along(self) -> dict[str, Tensor]:
        """Return what goes back with the best epoch's weights, by name."""
        return {key: tensor for declared, key, tensor in self._held() if declared.along}

    def answering(self) -> list[Tensor]:
        """Return what answers are computed with besides network, private copies and heads; masks do not count."""
        return [tensor for declared, _, tensor in self._held() if declared.answers]

    def load_state(self, state: Mapping[str, Tensor], tasks: int, device: torch.device) -> None:
        """Take back what `state` returned after so many tasks."""
        for name, declared, form in _declared(type(self)):
            if declared.kept:
                setattr(self, name, _gathered(declared, form, state, tasks, device))
        for part in self.parts:
            part.load_state(state, tasks, device)

    def release(self, task: int) -> None:
        """Empty what a finished task has left in fields with an entry a task, and all that is not kept."""
        for name, declared, form in _declared(type(self)):
            if not declared.kept:
                setattr(self, name, form() if form in (dict, list) else None)
            elif form is list:
                entries = list(getattr(self, name))
                entries[task] = {} if isinstance(entries[task], dict) else entries[task].new_empty(0)
                setattr(self, name, entries)
        for part in self.parts:
            part.release(task)

    def undeclared(self, known: set[int]) -> Iterator[str]:
        """Name the attributes that hold tensors which are neither declared nor among `known` (by id)."""
        names = {name for name, _, _ in _declared(type(self))}
        for name, value in vars(self).items():
            if isinstance(value, Part):
                yield from (f"{name}.{inner}" for inner in value.undeclared(known))
            elif name not in names and any(id(tensor) not in known for tensor in _tensors(value)):
                yield name

    def _held(self) -> Iterator[tuple[Declaration, str, Tensor]]:
        for name, declared, _ in _declared(type(self)):
            for key, tensor in _flat(declared.key, getattr(self, name)):
                yield declared, key, tensor
        for part in self.parts:
            yield from part._held()


@dataclass(init=False, eq=False)
class Part(Holder):
    """A piece of behaviour that methods are composed of: what it holds is saved with the method's own.

    The learner never calls a part: `Method` passes on what parts have a say in, in the order in which they were put
    on as attributes.
    """

    def __init__(self) -> None:
        self.declare()

    def trainable(self) -> dict[str, Tensor]:
        """Return what the part has the optimiser move, by name."""
        return {}

    def penalty(self) -> Tensor | None:
        """Return a term of the loss, in training and in validation."""
        return None

    def on_gradients(self) -> None:
        """Edit the gradients, before the lock does."""

    def after_step(self) -> None:
        """Put right what a step has moved, after the lock has."""


def _declared(holder: type[Holder]) -> list[tuple[str, Declaration, type]]:
    """Return the declared fields of a class: name, declaration, and the form of its value (list, dict or Tensor)."""
    if "_declared_fields" not in vars(holder):
        hints = get_type_hints(holder)
        found = [f for f in dataclasses.fields(holder) if "declared" in f.metadata]
        holder._declared_fields = [  # type: ignore[attr-defined]
            (f.name, f.metadata["declared"], get_origin(hints[f.name]) or hints[f.name]) for f in found
        ]
    fields: list[tuple[str, Declaration, type]] = holder._declared_fields  # type: ignore[attr-defined]
    return fields


def _flat(key: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield key, value
    elif value is not None:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(f"{key}/{name}" if key else str(name), inner)


def _gathered(declared: Declaration, form: type, state: Mapping[str, Tensor], tasks: int, device: torch.device) -> Any:
    def here(tensor: Tensor) -> Tensor:
        moved = tensor.to("cpu" if declared.host else device)
        return moved.bool() if declared.bits and moved.dtype == torch.uint8 else moved

    prefix = f"{declared.key}/" if declared.key else ""
    inside = {key.removeprefix(prefix): here(t) for key, t in state.items() if key.startswith(prefix)}
    if form is dict:
        return inside
    if form is not list:
        return here(state[declared.key]) if declared.key in state else None
    found: list[Any] = [{} for _ in range(tasks)]
    for key, tensor in inside.items():
        task, _, name = key.partition("/")
        if name:
            found[int(task)][name] = tensor
        else:
            found[int(task)] = tensor
    return found


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple | set):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inner)
