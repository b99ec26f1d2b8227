"""A task: named train, validation and test samples, what is to be predicted, and how raw inputs are prepared."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from hatrack.data.resident import resident, view
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.notebook import card, table
from hatrack.targets import Classification, Target
from hatrack.targets.stored import OURS
from hatrack.tree import at, count, form, leaves, mapped, named, rebuilt

Pair: TypeAlias = "tuple[Any, Any]"
Collate: TypeAlias = Callable[[list[Any]], Any]
SHOWN = 5  # labels that a message lists


@dataclass(frozen=True)
class Inputs:
    """What is done to raw inputs on the device: uint8 → [0, 1], then (x − mean)/std, then a permutation.

    mean and std are per channel (axis 1) or a single figure. The permutation indexes the flattened sample. `ids`:
    bytes are numbers of words, not brightness, and stay whole; without a word it is what the network can take.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    permutation: tuple[int, ...] | None = None
    ids: bool | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise HatrackError(f"Inputs needs mean and std of the same length, got {self.mean} and {self.std}.")

    @property
    def plain(self) -> bool:
        """Whether nothing is done but to turn bytes into numbers."""
        return self.mean is None and self.permutation is None

    def on(self, device: torch.device) -> Callable[[Any], Any]:
        """Return what prepares a batch, its constants already on `device`, so that a batch costs no host round trip."""
        mean = None if self.mean is None else torch.tensor(self.mean, device=device)
        inv_std = None if self.std is None else 1.0 / torch.tensor(self.std, device=device)
        order = None if self.permutation is None else torch.tensor(self.permutation, device=device)

        def prepare(x: Any) -> Any:
            x = mapped(self.as_numbers, x)
            if mean is not None and inv_std is not None:
                shape = (1, -1) + (1,) * (x.ndim - 2)
                x = (x - mean.view(shape)).mul_(inv_std.view(shape))
            return x if order is None else x.flatten(1).index_select(1, order).view(x.shape)

        return prepare

    def as_numbers(self, x: Tensor) -> Tensor:
        """Return bytes as numbers from 0 to 1, or as whole numbers where they are ids; anything else as it is."""
        return x.long() if self.ids and x.dtype == torch.uint8 else as_floats(x)


def as_inputs(given: Any, what: str = "inputs") -> Any:
    """Return inputs as a tensor, or a tuple or dict of tensors.

    NumPy's float64, a default, becomes float32; a tensor's is a choice, and stays.
    """
    parts = _several(given)
    if parts is not None:
        if not leaves(parts):
            raise HatrackError(f"{what} must hold at least one tensor, got an empty {type(given).__name__}.")
        return rebuilt(parts, [as_inputs(part, f"{what} {name!r}") for name, part in named(parts).items()])
    x = _tensor(given, what)
    return x.float() if x.dtype == torch.float64 and not isinstance(given, Tensor) else x


def _several(given: Any) -> dict[str, Any] | tuple[Any, ...] | None:
    """Return what is several inputs as a dict or a tuple; None for what is one."""
    if isinstance(given, Mapping):
        return dict(given)
    whole = isinstance(given, tuple) and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in given)
    return given if whole else None


def _tensor(given: Any, what: str) -> Tensor:
    try:
        return view(given) if isinstance(given, np.ndarray) else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        kind = getattr(given, "dtype", type(given).__name__)
        raise HatrackError(f"{what} must be numbers (a tensor, an array or a list of them), got {kind}.") from None


def read(data: Dataset[Any], row: int) -> tuple[Any, Tensor]:
    """Return the input and the target of one sample of a Dataset."""
    sample = data[row]
    if isinstance(sample, tuple | list):
        try:
            x, y = sample
            several = isinstance(x, Mapping | tuple)
            parts = dict(x) if isinstance(x, Mapping) else x
            return mapped(as_inputs, parts) if several else as_inputs(x), torch.as_tensor(y)
        except (TypeError, ValueError, RuntimeError, HatrackError):
            got = f"({', '.join(map(_kind, sample))})"
    else:
        got = type(sample).__name__
    raise HatrackError(
        f"a Dataset must give samples (input, target): a tensor, or a tuple or dict of tensors, and an integer or a "
        f"tensor; got {got}: wrap it in one that does, or bring batches of it to that form by Task(..., collate=f)."
    )


def _kind(part: Any) -> str:
    name = type(part).__name__
    return f"{name} of {part.dtype}" if hasattr(part, "dtype") else name


def as_floats(x: Tensor) -> Tensor:
    """Return bytes as numbers from 0 to 1, anything else as it is."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


class Split:
    """One part of a task.

    Either in memory (`x` and `y`, with `rows` choosing the samples, so that many tasks can share one
    memory-mapped array without copying it), or any map-style Dataset that yields (input, target). `weights`: how much
    each sample counts in training.
    """

    def __init__(
        self,
        x: Any,
        y: Tensor | None,
        rows: Tensor | None = None,
        collate: Collate | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self._x = x
        self._y = y
        self._rows = rows
        self._weights = weights
        self.collate = collate

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else len(self._x) if not self.resident else count(self._x)

    def __deepcopy__(self, memo: dict[int, Any]) -> Split:
        return self  # samples never change

    @property
    def resident(self) -> bool:
        """Whether the samples are arrays that can be moved to a device as a whole."""
        return not isinstance(self._x, Dataset)

    @property
    def labels(self) -> Tensor | None:
        """The targets, or None where only iterating the Dataset would tell."""
        return self._chosen(self._y)

    @property
    def weights(self) -> Tensor | None:
        """How much each sample counts in training; None where all count alike."""
        return self._chosen(self._weights)

    def _chosen(self, values: Tensor | None) -> Tensor | None:
        return values if values is None or self._rows is None else values[self._rows]

    def read_by(self, target: Target, where: str) -> Split:
        """Return the split with targets as `target` takes them."""
        if self._y is None:
            return self
        y = target.read(self._y, where)
        return self if y is self._y else Split(self._x, y, self._rows, self.collate, self._weights)

    def weighted(self, weights: Tensor) -> Split:
        """Return the split with a weight for each of its samples."""
        every = weights
        if self._rows is not None:
            every = torch.zeros(len(self._x) if not self.resident else count(self._x))
            every[self._rows] = weights
        return Split(self._x, self._y, self._rows, self.collate, every)

    def take(self, rows: Tensor) -> Split:
        """Return the samples at `rows`, sharing the storage."""
        chosen = rows if self._rows is None else self._rows[rows]
        return Split(self._x, self._y, chosen, self.collate, self._weights)

    def dataset(self) -> Dataset[Any]:
        """Return the map-style Dataset behind a split that is not resident."""
        base: Dataset[Any] = self._x
        return base if self._rows is None else Subset(base, self._rows.tolist())

    def on(self, device: torch.device) -> tuple[Any, Tensor]:
        """Return all inputs and targets of a resident split as tensors on `device`."""
        x, rows, y = self.placed(device)
        return mapped(lambda part: part.index_select(0, rows), x), y

    def placed(self, device: torch.device) -> tuple[Any, Tensor, Tensor]:
        """Return where a resident split's samples are on `device`: inputs to choose from, their rows, all targets."""
        y = self.labels
        assert y is not None
        rows = self._rows if self._rows is not None else torch.arange(len(self))
        return mapped(lambda part: resident(part, device), self._x), rows.to(device), y.to(device)

    def chunks(self, size: int) -> Iterator[Any]:
        """Yield all raw inputs of a resident split where they lie, `size` at a time."""
        x = mapped(lambda part: part if isinstance(part, Tensor) else view(part), self._x)
        if self._rows is None:
            yield from (at(x, slice(start, start + size)) for start in range(0, len(self), size))
        else:
            yield from (at(x, rows.to(leaves(x)[0].device)) for rows in self._rows.split(size))

    def first(self, count: int) -> Any:
        """Return the first `count` raw inputs as one batch."""
        rows = torch.arange(min(count, len(self)))
        if self.resident:
            return self.take(rows).on(torch.device("cpu"))[0]
        data = self.dataset()
        if self.collate is not None:
            return as_inputs(self.collate([data[int(i)] for i in rows])[0])
        samples = [read(data, int(i))[0] for i in rows]
        return mapped(lambda *parts: torch.stack(parts), *samples)


class Task:
    """One thing to learn: samples in three parts, what is to be predicted, and how inputs are prepared.

    Each part is (inputs, targets) as tensors or arrays, a map-style Dataset of (input, target) pairs, or a
    `Split`. Inputs may be a tuple or a dict of tensors: the network is called as net(*x) or net(**x). Arrays of float64
    are read as float32; tensors keep their type. Without `valid`, the learner holds out a share of `train`; without
    `test`, nothing is measured.

    target    what is predicted: hatrack.targets.Classification() (also by `classes` alone), MultiLabel, Regression,
              Dense, or your own
    loss      a function (output, y) → loss in place of the target's; `score`: a function (outputs, y) → figure, or
              a metric with update and compute, in place of its score
    weights   how much each training sample counts
    collate   what makes a batch (inputs, targets) of a list of samples of a Dataset, by padding for example
    about     in JSON values, what the task is made of: counts and normalisation, and whatever was given
    probes    raw inputs of your own on which `verify` is to compare answers too; they are not stored, and have to be
              given to it again
    """

    def __init__(
        self,
        name: str,
        train: Pair | Dataset[Any] | Split,
        valid: Pair | Dataset[Any] | Split | None = None,
        test: Pair | Dataset[Any] | Split | None = None,
        *,
        target: Target | None = None,
        classes: int | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        score: Any = None,
        weights: Any = None,
        inputs: Inputs | None = None,
        collate: Collate | None = None,
        about: Mapping[str, Any] | None = None,
        probes: Any = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise HatrackError(f"a task's name must be a text that is not empty, got {name!r}.")
        self.name = name
        where = f"task {name!r}"
        if target is not None and not isinstance(target, Target):
            raise HatrackError(f"{where}: target must be one of hatrack.targets or your own Target, got {target!r}.")
        if target is not None and OURS.get(getattr(target, "name", ""), type(target)) is not type(target):
            raise HatrackError(
                f"{where}: {type(target).__name__} calls itself {target.name!r}, which is hatrack's own; give it "
                f"another name."
            )
        if target is not None and classes is not None:
            raise HatrackError(f"{where}: give target or classes, which stands for Classification(classes), not both.")
        with _of(where):
            target = Classification(classes) if target is None else target
        given = {"train": train, "valid": valid, "test": test}
        parts = {part: _split(g, f"{where}, {part}", collate) for part, g in given.items() if g is not None}
        for part, split in parts.items():
            if len(split) == 0:
                raise HatrackError(f"{where}: its {part} part holds no sample.")
            if form(split._x) != form(parts["train"]._x) and split.resident and parts["train"].resident:
                raise HatrackError(
                    f"{where}: {part} inputs are {form(split._x)}, training inputs {form(parts['train']._x)}; give "
                    f"them alike."
                )
        parts = {part: split.read_by(target, f"{where}, {part}: labels") for part, split in parts.items()}
        labels = parts["train"].labels
        fitted = target.fitted(labels, where)
        if isinstance(target, Classification) and target.classes is None:
            _warn_of_gap(where, labels, fitted.outputs)
        with _of(where):
            self.target: Target = _whole(fitted.with_own(loss, score))
        self.train = parts["train"] if weights is None else parts["train"].weighted(_weights(weights, parts, where))
        self.valid = parts.get("valid")
        self.test = parts.get("test")
        self.inputs = inputs or Inputs()
        if not self.inputs.plain and self.train.resident and form(self.train._x) != "one tensor":
            raise HatrackError(
                f"{where}: mean, std and permutation are for inputs of one tensor, these are {form(self.train._x)}; "
                f"prepare them beforehand."
            )
        self._check_labels()
        self.probes = None if probes is None else as_inputs(probes, f"{where}: probes")
        facts: dict[str, Any] = {
            "classes": self.classes,
            **{part: len(split) for part, split in self._parts()},
            "mean": None if self.inputs.mean is None else list(self.inputs.mean),
            "std": None if self.inputs.std is None else list(self.inputs.std),
            "permuted": self.inputs.permutation is not None,
        }
        if not isinstance(self.target, Classification):
            facts |= {"target": self.target.name, "score": self.target.judged().score}
        self.about: dict[str, Any] = {**facts, **(about or {})}

    @property
    def classes(self) -> int:
        """The number of outputs of the task's head: of classes, labels, figures."""
        return self.target.outputs

    @property
    def varies(self) -> bool:
        """Whether batches may differ in shape: those that a collate function makes, and parts of pictures in sizes."""
        return self.train.collate is not None

    def with_inputs(self, inputs: Inputs) -> Task:
        """Return the task with its inputs prepared otherwise."""
        other = copy(self)
        other.inputs = inputs
        return other

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part}={len(split)}" for part, split in self._parts())
        kind = "" if isinstance(self.target, Classification) else f"{self.target.name}, "
        counted = "classes" if kind in ("", "dense, ") else "outputs"
        return f"Task({self.name!r}, {kind}{counted}={self.classes}, {sizes})"

    def _repr_html_(self) -> str:
        parts = [part for part, _ in self._parts()]
        sizes = [f"{len(split):,}" for _, split in self._parts()]
        counted = "classes" if isinstance(self.target, Classification) else f"{self.target.name}: outputs"
        return card(f"Task {self.name}", table([counted, *parts], [[self.classes, *sizes]]))

    def _parts(self) -> Sequence[tuple[str, Split]]:
        known = (("train", self.train), ("valid", self.valid), ("test", self.test))
        return [(name, part) for name, part in known if part is not None]

    def _check_labels(self) -> None:
        for part, split in self._parts():
            labels = split.labels
            found = None if labels is None else self.target.wrong(labels)
            if found is not None and labels is not None:
                row, why = found
                what = f"label {int(labels[row])} in row {row}" if labels.ndim == 1 else f"row {row}"
                raise HatrackError(f"task {self.name!r}: {what} of {part} {why}.")


@contextmanager
def _of(where: str) -> Iterator[None]:
    """Say of an error which task it is of."""
    try:
        yield
    except HatrackError as error:
        raise HatrackError(f"{where}: {error}") from None


def _whole(target: Target) -> Target:
    """Return a target that says what it must."""
    name, outputs = getattr(target, "name", None), target.outputs
    if not isinstance(name, str) or not name or isinstance(outputs, bool) or not isinstance(outputs, int):
        raise HatrackError(
            f"target {type(target).__name__} must have a name and a whole number of outputs, got {name!r} and "
            f"{outputs!r}."
        )
    try:
        json.dumps(target.described(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise HatrackError(
            f"target {name!r} has a field that a saved learner cannot hold ({error}); let its fields be numbers, "
            f"texts or lists of them."
        ) from None
    return target


def _warn_of_gap(where: str, labels: Tensor | None, classes: int) -> None:
    if labels is None or labels.ndim > 1 or not len(labels):
        return
    occurring = labels.unique().tolist()
    if occurring[0] > 0:  # a class may lack samples, but labels that begin above 0 were made for all tasks together
        said = ", ".join(map(str, occurring[:SHOWN])) + (", …" if len(occurring) > SHOWN else "")
        line = (
            f"{where} has labels {said}, so that its head gets {classes} outputs; labels count from 0 "
            f"within a task: map them, or give Task(..., classes={classes})."
        )
        warnings.warn(HatrackWarning(line), stacklevel=4)


def _weights(given: Any, parts: Mapping[str, Split], where: str) -> Tensor:
    weights = _tensor(given, f"{where}: weights").float()
    wanted = len(parts["train"])
    if (
        weights.shape != (wanted,)
        or not bool((weights >= 0).all() & weights.isfinite().all())
        or not bool(weights.any())
    ):
        raise HatrackError(
            f"{where}: weights must be {wanted} figures of 0 or more, one a training sample, got "
            f"{tuple(weights.shape)}."
        )
    return weights


def _split(given: Pair | Dataset[Any] | Split, where: str, collate: Collate | None) -> Split:
    if isinstance(given, Split):
        return given
    if isinstance(given, Dataset):
        if not hasattr(given, "__len__"):
            raise HatrackError(f"{where}: an iterable Dataset was given; give a map-style one (with __len__).")
        targets = getattr(given, "targets", None)
        return Split(given, None if targets is None else _tensor(targets, f"{where}: targets"), collate=collate)
    try:
        x, y = given
    except (TypeError, ValueError):
        raise HatrackError(
            f"{where}: expected (inputs, labels), a map-style Dataset or None, got {type(given).__name__}."
        ) from None
    if collate is not None:
        raise HatrackError(f"{where}: collate is for a Dataset, whose samples it makes batches of; arrays are batches.")
    numbers = as_inputs(x, f"{where}: inputs")
    y = _tensor(y, f"{where}: labels")
    for name, part in named(numbers).items():
        whose = f" {name!r}" if name else ""
        if part.ndim == 0 or len(part) == 0:
            raise HatrackError(f"{where}: it holds no sample.")
        if y.ndim and len(part) != len(y):
            raise HatrackError(f"{where}: {len(part)} inputs{whose} but {len(y)} labels.")
        if part.is_floating_point():
            finite = part.isfinite().reshape(len(part), -1).all(1)
            if not finite.all():
                raise HatrackError(f"{where}: the input{whose} in row {int(finite.int().argmin())} is not finite.")
    return Split(mapped(_shareable, x if (several := _several(x)) is None else several, numbers), y)


def _shareable(given: Any, read: Tensor) -> Any:
    """Return an array as it was given, for tasks may share it, unless reading has changed its type."""
    return given if isinstance(given, np.ndarray) and given.dtype != np.float64 else read
