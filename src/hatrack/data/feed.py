"""Samples on their way to the network: resident on the device as they are stored, prepared batch by batch.

Small-image sets stay on the device as uint8 and are normalised there. A Dataset goes through a DataLoader. Several
tasks can feed together (joint training, replay): then every sample carries the number of its task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, default_collate

from hatrack.data.inputs import Inputs, as_floats, as_inputs
from hatrack.data.packing import Packing
from hatrack.data.samples import Split, read
from hatrack.errors import HatrackError
from hatrack.targets import Target
from hatrack.tree import at, count, form, leaves, mapped, shapes


class Batch(NamedTuple):
    """Prepared inputs, targets; the task of each sample where a batch mixes tasks, and its weight where it has one.

    Where the tasks' targets are not of one shape and type, `y` holds them packed.
    """

    x: Any
    y: Tensor
    source: Tensor | None = None
    weights: Tensor | None = None
    packing: Packing | None = None

    def of(self, task: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return which samples of a batch that mixes tasks are of this one, their targets, and their weights."""
        assert self.source is not None
        rows = self.source == task
        y = self.y[rows]
        y = y if self.packing is None else self.packing.unpacked(task, y)
        return rows, y, None if self.weights is None else self.weights[rows]


class Part(NamedTuple):
    """The samples of one task, its number, and what it predicts."""

    task: int
    split: Split
    inputs: Inputs
    target: Target


class Feed:
    """Batches from one task or several; `training`: with the weights of their samples."""

    def __init__(self, parts: Sequence[Part], device: torch.device, workers: int = 0, training: bool = False) -> None:
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
        self._weights = _weights(parts) if training else None
        self.resident = all(part.split.resident for part in parts)  # all samples are on the device: `gather` works
        self._packing: Packing | None = None
        # Joined as they are, bytes beside floats would become floats up to 255.
        first = [part.split.first(1) for part in parts] if self._mixed else []
        self._uneven = len({tuple(leaf.dtype for leaf in leaves(x)) for x in first}) > 1
        if self.resident:
            placed = [part.split.placed(device) for part in parts]
            if self._uneven:
                placed = [(mapped(as_floats, x), rows, y) for x, rows, y in placed]
            _refuse_unlike([x for x, _, _ in placed])
            self._x, self._rows = _joined([(x, rows) for x, rows, _ in placed])
            packing = Packing({part.task: y for part, (_, _, y) in zip(parts, placed, strict=True)})
            self._packing = packing if packing.needed else None
            self._y = torch.cat([y if self._packing is None else packing.packed(y) for _, _, y in placed])
            self._source = self._source.to(device)
            self._weights = None if self._weights is None else self._weights.to(device)

    def __len__(self) -> int:
        return len(self._source)

    def __deepcopy__(self, memo: dict[int, Any]) -> Feed:
        return self  # samples never change

    @cached_property
    def sample_size(self) -> int:
        """The number of values in one input."""
        x = self._x if self.resident else self._parts[0].split.first(1)
        return sum(part.shape[1:].numel() for part in leaves(x))

    def steps(self, size: int) -> int:
        """Return the number of batches of `size` in an epoch; the last one may be smaller."""
        return -(-len(self) // size)

    def order(self, generator: torch.Generator | None = None) -> Tensor:
        """Return the rows in the order of an epoch: shuffled by `generator`, as stored without one."""
        return torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)

    def gather(self, rows: Tensor) -> Batch:
        """Return the resident samples at `rows`, which are on the device: no host round trip."""
        places = self._rows.index_select(0, rows)
        x = mapped(lambda part: part.index_select(0, places), self._x)
        return self._batch(
            x,
            self._y.index_select(0, rows),
            self._source.index_select(0, rows) if self._mixed else None,
            None if self._weights is None else self._weights.index_select(0, rows),
        )

    def labels(self) -> Tensor:
        """Return all targets of one task in their stored order."""
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

    def _batch(self, x: Any, y: Tensor, source: Tensor | None, weights: Tensor | None) -> Batch:
        if source is None or len(self._prepare) == 1:
            return Batch(self._prepare[0](x), y, source, weights, self._packing)
        prepared = [prepare(x) for prepare in self._prepare]
        rows = torch.arange(len(y), device=y.device)
        chosen = mapped(lambda *parts: torch.stack(parts)[self._which[source], rows], *prepared)
        return Batch(chosen, y, source, weights, self._packing)

    def _loaded(self, size: int, order: Tensor) -> Iterator[Batch]:
        collate = self._collate()
        datasets: list[Dataset[Any]] = [_Labelled(part.split, self._uneven) for part in self._parts]
        loader: DataLoader[Any] = DataLoader(
            ConcatDataset(datasets),
            batch_size=size,
            sampler=order.tolist(),
            num_workers=self._workers,
            collate_fn=collate,
        )
        done = 0
        for x, y in loader:
            rows = order[done : done + len(y)]
            done += len(y)
            y = self._checked(y, rows)
            source = self._source[rows].to(self._device) if self._mixed else None
            weights = None if self._weights is None else self._weights[rows].to(self._device)
            yield self._batch(mapped(lambda part: part.to(self._device), x), y.to(self._device), source, weights)

    def _collate(self) -> Callable[[list[Any]], Any]:
        given = {part.split.collate for part in self._parts}
        if given == {None}:
            return _collated
        if len(given) > 1 or not all(hasattr(part.split._x, "__getitem__") for part in self._parts):
            raise HatrackError("tasks that are learned together need one collate function for all.")
        (own,) = given
        assert own is not None
        return _Own(own)

    def _checked(self, y: Tensor, rows: Tensor) -> Tensor:
        """Refuse targets that a head has no output for, here on the host: a device would have to be waited for."""
        sources, read = self._source.cpu()[rows], y
        for number, part in enumerate(self._parts):
            mine = sources == part.task
            named = f"the Dataset of task number {part.task}"
            own = part.target.read(y[mine], f"{named}: labels")
            found = part.target.wrong(own) if len(own) else None
            if found is not None:
                row, why = found
                what = f"label {int(own[row])}" if own.ndim == 1 else f"sample {int(rows[mine][row])}"
                raise HatrackError(
                    f"{what} in {named} {why}; labels count from 0 within a task: give Task(..., classes=N)."
                )
            read = own.new_zeros(len(y), *own.shape[1:]) if number == 0 else read
            read[mine] = own
        return read


def _weights(parts: Sequence[Part]) -> Tensor | None:
    given = [part.split.weights for part in parts]
    if all(weights is None for weights in given):
        return None
    return torch.cat([torch.ones(len(p.split)) if w is None else w for p, w in zip(parts, given, strict=True)])


def _refuse_unlike(inputs: Sequence[Any]) -> None:
    forms = {form(x) for x in inputs}
    if len(forms) > 1:
        raise HatrackError(
            f"tasks that are learned together need inputs of one form, got {' and '.join(sorted(forms))}."
        )
    found = {str(shapes(x) if isinstance(x, tuple | dict) else tuple(x.shape[1:])) for x in inputs}
    if len(found) > 1:
        raise HatrackError(
            f"tasks that are learned together need inputs of one shape, got {' and '.join(sorted(found))}."
        )


def _joined(placed: Sequence[tuple[Any, Tensor]]) -> tuple[Any, Tensor]:
    """Return inputs and rows of several parts as one; copied only where they choose from different arrays."""
    arrays = {tuple((leaf.data_ptr(), leaf.shape, leaf.stride()) for leaf in leaves(x)) for x, _ in placed}
    if len(arrays) == 1:
        return placed[0][0], torch.cat([rows for _, rows in placed])
    chosen = [mapped(lambda leaf: leaf.index_select(0, rows), x) for x, rows in placed]  # noqa: B023 - used at once
    everything = mapped(lambda *parts: torch.cat(parts), *chosen)
    return everything, torch.arange(count(everything), device=leaves(everything)[0].device)


def _collated(samples: list[Any]) -> Any:
    """Return samples as a batch."""
    return default_collate(samples)


class _Own:
    """The user's way of making a batch of samples; it may travel to a worker process."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> Any:
        made = self._collate(samples)
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise HatrackError(f"collate must return (inputs, targets), got {type(made).__name__}.")
        return as_inputs(made[0]), torch.as_tensor(made[1])


class _Labelled(Dataset[Any]):
    """A split as a map-style Dataset of (input, target); `floats`: bytes as numbers from 0 to 1."""

    def __init__(self, split: Split, floats: bool) -> None:
        self._data: Any = split.dataset() if not split.resident else None
        self._placed = split.placed(torch.device("cpu")) if split.resident else None
        self._length = len(split)
        self._floats = floats
        self._raw = split.collate is not None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Any:
        if self._raw:
            return self._data[row]
        if self._placed is not None:
            inputs, rows, labels = self._placed
            x, y = at(inputs, rows[row]), labels[row]
        else:
            x, y = read(self._data, row)
        return mapped(as_floats, x) if self._floats else x, y
