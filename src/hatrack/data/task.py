"""A task: named train, validation and test samples with integer labels, and how raw inputs are prepared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from operator import index
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from hatrack.data.resident import resident, view
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.notebook import card, table

Pair: TypeAlias = "tuple[Any, Any]"
SHOWN = 5  # labels that a message lists


@dataclass(frozen=True)
class Inputs:
    """What is done to raw inputs on the device: uint8 → [0, 1], then (x − mean)/std, then a permutation.

    mean and std are per channel (axis 1) or a single figure. The permutation indexes the flattened sample.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    permutation: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise HatrackError(f"Inputs needs mean and std of the same length, got {self.mean} and {self.std}.")

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return what prepares a batch, its constants already on `device`, so that a batch costs no host round trip."""
        mean = None if self.mean is None else torch.tensor(self.mean, device=device)
        inv_std = None if self.std is None else 1.0 / torch.tensor(self.std, device=device)
        order = None if self.permutation is None else torch.tensor(self.permutation, device=device)

        def prepare(x: Tensor) -> Tensor:
            x = as_floats(x)
            if mean is not None and inv_std is not None:
                shape = (1, -1) + (1,) * (x.ndim - 2)
                x = (x - mean.view(shape)).mul_(inv_std.view(shape))
            return x if order is None else x.flatten(1).index_select(1, order).view(x.shape)

        return prepare


def as_inputs(given: Any, what: str = "inputs") -> Tensor:
    """Return inputs as a tensor. NumPy's float64, a default, becomes float32; a tensor's is a choice, and stays."""
    x = _tensor(given, what)
    return x.float() if x.dtype == torch.float64 and not isinstance(given, Tensor) else x


def _tensor(given: Any, what: str) -> Tensor:
    try:
        return view(given) if isinstance(given, np.ndarray) else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        kind = getattr(given, "dtype", type(given).__name__)
        raise HatrackError(f"{what} must be numbers (a tensor, an array or a list of them), got {kind}.") from None


def _labels(given: Any, what: str) -> Tensor:
    y = _tensor(given, what)
    if y.ndim != 1 or y.is_floating_point():
        raise HatrackError(f"{what} must be one integer a sample, got {tuple(y.shape)} {y.dtype}.")
    return y.long()


def read(data: Dataset[Any], row: int) -> tuple[Tensor, int]:
    """Return the input and the label of one sample of a Dataset."""
    sample = data[row]
    if isinstance(sample, tuple | list):
        try:
            x, y = sample
            return as_inputs(x), index(y)
        except (TypeError, ValueError, RuntimeError):
            got = f"({', '.join(map(_kind, sample))})"
    else:
        got = type(sample).__name__
    raise HatrackError(
        f"a Dataset must give samples (input, label), one tensor and one integer, got {got}; wrap it in one that does."
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
    memory-mapped array without copying it), or any map-style Dataset that yields (input, label).
    """

    def __init__(self, x: Any, y: Tensor | None, rows: Tensor | None = None) -> None:
        self._x = x
        self._y = y
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else len(self._x)

    def __deepcopy__(self, memo: dict[int, Any]) -> Split:
        return self  # samples never change

    @property
    def resident(self) -> bool:
        """Whether the samples are arrays that can be moved to a device as a whole."""
        return not isinstance(self._x, Dataset)

    @property
    def labels(self) -> Tensor | None:
        """The labels, or None where only iterating the Dataset would tell."""
        if self._y is None or self._rows is None:
            return self._y
        return self._y[self._rows]

    def take(self, rows: Tensor) -> Split:
        """Return the samples at `rows`, sharing the storage."""
        return Split(self._x, self._y, rows if self._rows is None else self._rows[rows])

    def dataset(self) -> Dataset[Any]:
        """Return the map-style Dataset behind a split that is not resident."""
        base: Dataset[Any] = self._x
        return base if self._rows is None else Subset(base, self._rows.tolist())

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return all inputs and labels of a resident split as tensors on `device`."""
        x, rows, y = self.placed(device)
        return x.index_select(0, rows), y

    def placed(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return where a resident split's samples are on `device`: inputs to choose from, their rows, all labels."""
        y = self.labels
        assert y is not None
        rows = self._rows if self._rows is not None else torch.arange(len(self._x))
        return resident(self._x, device), rows.to(device), y.to(device)

    def chunks(self, size: int) -> Iterator[Tensor]:
        """Yield all raw inputs of a resident split where they lie, `size` at a time."""
        x = self._x if isinstance(self._x, Tensor) else view(self._x)
        yield from x.split(size) if self._rows is None else (x[rows.to(x.device)] for rows in self._rows.split(size))

    def first(self, count: int) -> Tensor:
        """Return the first `count` raw inputs as one tensor."""
        rows = torch.arange(min(count, len(self)))
        if self.resident:
            return self.take(rows).on(torch.device("cpu"))[0]
        data = self.dataset()
        return torch.stack([read(data, int(i))[0] for i in rows])


class Task:
    """One thing to learn: samples in three parts, their number of classes, and how inputs are prepared.

    Each part is (inputs, labels) as tensors or arrays, a map-style Dataset of (input, label) pairs, or a
    `Split`. Arrays of float64 are read as float32; tensors keep their type. Without `valid`, the learner
    holds out a share of `train`; without `test`, nothing is measured. `about` says in JSON values what the
    task is made of: counts and normalisation, and whatever was given (set, classes, notes). `probes`: raw inputs of
    your own on which `verify` is to compare answers too; they are not stored, and have to be given to it again.
    """

    def __init__(
        self,
        name: str,
        train: Pair | Dataset[Any] | Split,
        valid: Pair | Dataset[Any] | Split | None = None,
        test: Pair | Dataset[Any] | Split | None = None,
        *,
        classes: int | None = None,
        inputs: Inputs | None = None,
        about: Mapping[str, Any] | None = None,
        probes: Any = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise HatrackError(f"a task's name must be a text that is not empty, got {name!r}.")
        self.name = name
        self.train = _split(train, f"task {name!r}, train")
        self.valid = None if valid is None else _split(valid, f"task {name!r}, valid")
        self.test = None if test is None else _split(test, f"task {name!r}, test")
        self.inputs = inputs or Inputs()
        if classes is not None and (not isinstance(classes, Integral) or classes < 1):
            raise HatrackError(f"task {name!r}: classes must be a whole number, 1 or more, got {classes!r}.")
        self.classes = int(classes) if classes is not None else self._count_classes()
        self._check_labels()
        self.probes = None if probes is None else as_inputs(probes, f"task {name!r}: probes")
        facts = {
            "classes": self.classes,
            **{part: len(split) for part, split in self._parts()},
            "mean": None if self.inputs.mean is None else list(self.inputs.mean),
            "std": None if self.inputs.std is None else list(self.inputs.std),
            "permuted": self.inputs.permutation is not None,
        }
        self.about: dict[str, Any] = {**facts, **(about or {})}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part}={len(split)}" for part, split in self._parts())
        return f"Task({self.name!r}, classes={self.classes}, {sizes})"

    def _repr_html_(self) -> str:
        parts = [part for part, _ in self._parts()]
        sizes = [f"{len(split):,}" for _, split in self._parts()]
        return card(f"Task {self.name}", table(["classes", *parts], [[self.classes, *sizes]]))

    def _parts(self) -> Sequence[tuple[str, Split]]:
        named = (("train", self.train), ("valid", self.valid), ("test", self.test))
        return [(name, part) for name, part in named if part is not None]

    def _count_classes(self) -> int:
        labels = self.train.labels
        if labels is None:
            raise HatrackError(
                f"task {self.name!r}: the number of classes cannot be seen in a Dataset without `targets`; "
                f"give Task(..., classes=N)."
            )
        if len(labels) == 0:
            return 0
        occurring = labels.unique().tolist()
        classes = int(occurring[-1]) + 1
        if occurring[0] > 0:  # a class may lack samples, but labels that begin above 0 were made for all tasks together
            said = ", ".join(map(str, occurring[:SHOWN])) + (", …" if len(occurring) > SHOWN else "")
            line = (
                f"task {self.name!r} has labels {said}, so that its head gets {classes} outputs; labels count from 0 "
                f"within a task: map them, or give Task(..., classes={classes})."
            )
            warnings.warn(HatrackWarning(line), stacklevel=3)
        return classes

    def _check_labels(self) -> None:
        for part, split in self._parts():
            labels = split.labels
            if len(split) == 0:
                raise HatrackError(f"task {self.name!r}: its {part} part holds no sample.")
            if labels is None:
                continue
            bad = ((labels < 0) | (labels >= self.classes)).nonzero()
            if len(bad):
                row = int(bad[0])
                raise HatrackError(
                    f"task {self.name!r}: label {int(labels[row])} in row {row} of {part} is outside "
                    f"0..{self.classes - 1}."
                )


def _split(given: Pair | Dataset[Any] | Split, where: str) -> Split:
    if isinstance(given, Split):
        return given
    if isinstance(given, Dataset):
        if not hasattr(given, "__len__"):
            raise HatrackError(f"{where}: an iterable Dataset was given; give a map-style one (with __len__).")
        targets = getattr(given, "targets", None)
        return Split(given, None if targets is None else _labels(targets, f"{where}: targets"))
    try:
        x, y = given
    except (TypeError, ValueError):
        raise HatrackError(
            f"{where}: expected (inputs, labels), a map-style Dataset or None, got {type(given).__name__}."
        ) from None
    numbers = as_inputs(x, f"{where}: inputs")
    if not isinstance(x, np.ndarray) or x.dtype == np.float64:  # other arrays stay: tasks may share them
        x = numbers
    y = _tensor(y, f"{where}: labels")
    if x.ndim == 0 or len(x) == 0:
        raise HatrackError(f"{where}: it holds no sample.")
    if y.ndim and len(x) != len(y):
        raise HatrackError(f"{where}: {len(x)} inputs but {len(y)} labels.")
    y = _labels(y, f"{where}: labels")
    if numbers.is_floating_point():
        finite = numbers.isfinite().reshape(len(x), -1).all(1)
        if not finite.all():
            raise HatrackError(f"{where}: the input in row {int(finite.int().argmin())} is not finite.")
    return Split(x, y)
