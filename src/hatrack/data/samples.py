"""The samples of one part of a task: arrays in memory, a Dataset, or a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from hatrack.data.draws import drawn_from
from hatrack.data.inputs import as_inputs, as_tensor, several
from hatrack.data.resident import resident, view
from hatrack.errors import HatrackError
from hatrack.targets import Target
from hatrack.tree import at, count, leaves, mapped, named

Pair: TypeAlias = "tuple[Any, Any]"
Collate: TypeAlias = Callable[[list[Any]], Any]
RANDOM_ACCESS = "give a map-style one, with __getitem__ and __len__."


def read(sample: Any) -> tuple[Any, Tensor]:
    """Return the input and the target of one sample of a Dataset."""
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


class Listed(Dataset[Any]):
    """Samples at hand as a map-style Dataset."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, row: int) -> Any:
        return self._samples[row]


class Split:
    """One part of a task.

    Either in memory (`x` and `y`, with `rows` choosing the samples, so that many tasks can share one
    memory-mapped array without copying it), or any map-style Dataset that yields (input, target), or an iterable one, a
    stream, of `length` samples. `weights`: how much each sample counts in training.
    """

    def __init__(
        self,
        x: Any,
        y: Tensor | None,
        rows: Tensor | None = None,
        collate: Collate | None = None,
        weights: Tensor | None = None,
        length: int | None = None,
    ) -> None:
        self._x = x
        self._length = length
        self._y = y
        self._rows = rows
        self._weights = weights
        self.collate = collate

    def __len__(self) -> int:
        if self._length is not None:
            return self._length
        return len(self._rows) if self._rows is not None else len(self._x) if not self.resident else count(self._x)

    def __deepcopy__(self, memo: dict[int, Any]) -> Split:
        return self  # samples never change

    @property
    def resident(self) -> bool:
        """Whether the samples are arrays that can be moved to a device as a whole."""
        return not isinstance(self._x, Dataset)

    @property
    def streams(self) -> bool:
        """Whether the samples come one after the other, and none can be asked for by its number."""
        return isinstance(self._x, IterableDataset)

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
        if self.streams:
            raise HatrackError(f"samples of an iterable Dataset cannot be chosen; {RANDOM_ACCESS}")
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

    def begin(self, count: int) -> Split:
        """Return the first `count` samples."""
        if self.streams:
            return Split(Listed(list(islice(self._x, count))), None, collate=self.collate)
        return self.take(torch.arange(min(count, len(self))))

    def first(self, count: int) -> Any:
        """Return the first `count` raw inputs as one batch."""
        if self.streams:
            return self.begin(count).first(count)
        rows = torch.arange(min(count, len(self)))
        if self.resident:
            return self.take(rows).on(torch.device("cpu"))[0]
        data = self.dataset()
        if self.collate is not None:
            return as_inputs(self.collate([data[int(i)] for i in rows])[0])
        samples = [read(data[int(i)])[0] for i in rows]
        return mapped(lambda *parts: torch.stack(parts), *samples)


def split_of(given: Pair | Dataset[Any] | Split, where: str, collate: Collate | None, length: int | None) -> Split:
    """Return what was given as one part of a task; `length`: the samples of an epoch, of a stream."""
    if length is not None and (isinstance(length, bool) or not isinstance(length, Integral) or length < 1):
        raise HatrackError(f"{where}: length must be a whole number, 1 or more, got {length!r}.")
    if collate is not None and not callable(collate):
        raise HatrackError(
            f"{where}: collate must be a function of a list of samples that returns (inputs, targets), got {collate!r}."
        )
    if isinstance(given, IterableDataset):
        return Split(given, None, collate=collate, length=_counted(given, where) if length is None else length)
    if length is not None:
        raise HatrackError(f"{where}: length is for an iterable Dataset; all samples of others are in every epoch.")
    if isinstance(given, Split):
        return given
    if isinstance(given, Dataset):
        if not hasattr(given, "__len__"):
            raise HatrackError(
                f"{where}: a Dataset without a length was given; give it __len__, or make it an IterableDataset."
            )
        targets = getattr(given, "targets", None)
        return Split(given, None if targets is None else as_tensor(targets, f"{where}: targets"), collate=collate)
    try:
        x, y = given
    except (TypeError, ValueError):
        raise HatrackError(
            f"{where}: expected (inputs, labels), a Dataset or None, got {type(given).__name__}."
        ) from None
    if collate is not None:
        raise HatrackError(f"{where}: collate is for a Dataset, whose samples it makes batches of; arrays are batches.")
    numbers = as_inputs(x, f"{where}: inputs")
    y = as_tensor(y, f"{where}: labels")
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
    return Split(mapped(_shareable, x if (parts := several(x)) is None else parts, numbers), y)


def _counted(stream: IterableDataset[Any], where: str) -> int:
    """Return how many samples a stream gives: what it says, else what one pass over it gives."""
    try:
        said: int = len(stream)  # type: ignore[arg-type]
    except TypeError:
        with drawn_from(0):
            said = sum(1 for _ in stream)
    if said < 1:
        raise HatrackError(f"{where}: it holds no sample.")
    return said


def _shareable(given: Any, read: Tensor) -> Any:
    """Return an array as it was given, for tasks may share it, unless reading has changed its type."""
    return given if isinstance(given, np.ndarray) and given.dtype != np.float64 else read
