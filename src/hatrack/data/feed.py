"""Samples on their way to the network: resident on the device as they are stored, prepared batch by batch.

Small-image sets stay on the device as uint8 and are normalised there. A Dataset goes through a DataLoader. Several
tasks can feed together (joint training, replay): then every sample carries the number of its task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset

from hatrack.data.task import Inputs, Split, as_floats, read
from hatrack.errors import HatrackError


class Batch(NamedTuple):
    """Prepared inputs, labels, and the task of each sample where a batch mixes tasks."""

    x: Tensor
    y: Tensor
    source: Tensor | None = None


class Part(NamedTuple):
    """The samples of one task, its number, and how many classes it has."""

    task: int
    split: Split
    inputs: Inputs
    classes: int


class Feed:
    """Batches from one task or several."""

    def __init__(self, parts: Sequence[Part], device: torch.device, workers: int = 0) -> None:
        self._parts = parts
        self._device = device
        self._workers = workers
        distinct = list(dict.fromkeys(part.inputs for part in parts))
        self._prepare = [inputs.on(device) for inputs in distinct]
        self._mixed = len(parts) > 1
        self._which = torch.zeros(1 + max(part.task for part in parts), dtype=torch.long, device=device)
        for part in parts:
            self._which[part.task] = distinct.index(part.inputs)
        lengths = torch.tensor([len(part.split) for part in parts])
        self._source = torch.repeat_interleave(torch.tensor([p.task for p in parts]), lengths)
        self._classes = torch.repeat_interleave(torch.tensor([p.classes for p in parts]), lengths)
        self.resident = all(part.split.resident for part in parts)  # all samples are on the device: `gather` works
        # Joined as they are, bytes beside floats would become floats up to 255.
        self._uneven = self._mixed and len({part.split.first(1).dtype for part in parts}) > 1
        if self.resident:
            placed = [part.split.placed(device) for part in parts]
            if self._uneven:
                placed = [(as_floats(x), rows, y) for x, rows, y in placed]
            shapes = {tuple(x.shape[1:]) for x, _, _ in placed}
            if len(shapes) > 1:
                raise HatrackError(f"tasks that are learned together need inputs of one shape, got {sorted(shapes)}.")
            self._x, self._rows = _joined([(x, rows) for x, rows, _ in placed])
            self._y = torch.cat([y for _, _, y in placed])
            self._source = self._source.to(device)

    def __len__(self) -> int:
        return len(self._source)

    def __deepcopy__(self, memo: dict[int, Any]) -> Feed:
        return self  # samples never change

    @cached_property
    def sample_size(self) -> int:
        """The number of values in one input."""
        if self.resident:
            return self._x.shape[1:].numel()
        return self._parts[0].split.first(1).numel()

    def steps(self, size: int) -> int:
        """Return the number of batches of `size` in an epoch; the last one may be smaller."""
        return -(-len(self) // size)

    def order(self, generator: torch.Generator | None = None) -> Tensor:
        """Return the rows in the order of an epoch: shuffled by `generator`, as stored without one."""
        return torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)

    def gather(self, rows: Tensor) -> Batch:
        """Return the resident samples at `rows`, which are on the device: no host round trip."""
        x, y = self._x.index_select(0, self._rows.index_select(0, rows)), self._y.index_select(0, rows)
        return self._batch(x, y, self._source.index_select(0, rows) if self._mixed else None)

    def labels(self) -> Tensor:
        """Return all labels in their stored order."""
        if self.resident:
            return self._y
        return torch.cat([batch.y for batch in self.batches(1024)])

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Yield all samples once, shuffled by `generator`, in stored order without one."""
        order = self.order(generator)
        if not self.resident:
            yield from self._loaded(size, order)
            return
        order = order.to(self._device)
        for start in range(0, len(self), size):
            yield self.gather(order[start : start + size])

    def _batch(self, x: Tensor, y: Tensor, source: Tensor | None) -> Batch:
        if source is None or len(self._prepare) == 1:
            return Batch(self._prepare[0](x), y, source)
        prepared = torch.stack([prepare(x) for prepare in self._prepare])
        return Batch(prepared[self._which[source], torch.arange(len(x), device=x.device)], y, source)

    def _loaded(self, size: int, order: Tensor) -> Iterator[Batch]:
        datasets: list[Dataset[Any]] = [_Labelled(part.split, self._uneven) for part in self._parts]
        loader: DataLoader[Any] = DataLoader(
            ConcatDataset(datasets), batch_size=size, sampler=order.tolist(), num_workers=self._workers
        )
        done = 0
        for x, y in loader:
            rows = order[done : done + len(y)]
            done += len(y)
            self._check_labels(y, rows)
            source = self._source[rows].to(self._device) if self._mixed else None
            yield self._batch(x.to(self._device), y.to(self._device), source)

    def _check_labels(self, y: Tensor, rows: Tensor) -> None:
        """Refuse labels that a head has no output for, here on the host: a device would have to be waited for."""
        wrong = ((y < 0) | (y >= self._classes[rows])).nonzero()
        if len(wrong):
            first = int(wrong[0])
            row = rows[first]
            raise HatrackError(
                f"label {int(y[first])} in the Dataset of task number {int(self._source[row])} is outside "
                f"0..{int(self._classes[row]) - 1}; labels count from 0 within a task: give Task(..., classes=N)."
            )


def _joined(placed: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Return inputs and rows of several parts as one; copied only where they choose from different arrays."""
    arrays = {(x.data_ptr(), x.shape, x.stride()) for x, _ in placed}
    if len(arrays) == 1:
        return placed[0][0], torch.cat([rows for _, rows in placed])
    everything = torch.cat([x.index_select(0, rows) for x, rows in placed])
    return everything, torch.arange(len(everything), device=everything.device)


class _Labelled(Dataset[Any]):
    """A split as a map-style Dataset of (input, integer label); `floats`: bytes as numbers from 0 to 1."""

    def __init__(self, split: Split, floats: bool) -> None:
        self._data: Any = split.dataset() if not split.resident else None
        self._placed = split.placed(torch.device("cpu")) if split.resident else None
        self._length = len(split)
        self._floats = floats

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if self._placed is not None:
            inputs, rows, labels = self._placed
            x, y = inputs[rows[row]], int(labels[row])
        else:
            x, y = read(self._data, row)
        return as_floats(x) if self._floats else x, y
