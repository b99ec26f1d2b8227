"""Batches out of Datasets, read by worker processes or here.

What a Dataset draws (an augmentation of its own, the order of a stream) follows from the seed that an epoch gives each
batch, so that neither the number of workers nor a run that was taken up again changes it. A stream's workers draw from
a seed that an epoch gives each of them; the same workers give the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

from hatrack.data.draws import begin_at, drawn_from
from hatrack.data.inputs import as_floats, as_inputs
from hatrack.data.order import Order, tell_epoch
from hatrack.data.samples import RANDOM_ACCESS, Split, read
from hatrack.errors import HatrackError
from hatrack.tree import at, count, mapped, same_form, shapes

if TYPE_CHECKING:
    from hatrack.data.feed import Part


class Loading:
    """Reads the parts of a feed; `floats`: bytes as numbers from 0 to 1; `keep`: workers live on between epochs."""

    def __init__(self, parts: Sequence[Part], device: torch.device, workers: int, floats: bool, keep: bool) -> None:
        splits = [part.split for part in parts]
        self._device, self._workers, self._keep = device, workers, keep and workers > 0
        self._collate = _collate_of(splits)
        self._loaders: dict[int, DataLoader[Any]] = {}
        if any(split.streams for split in splits):
            if len(splits) > 1:
                raise HatrackError(f"tasks that are learned together cannot be iterable Datasets; {RANDOM_ACCESS}")
            self._stream: _Stream | None = _Stream(splits[0])
        else:
            self._stream = None
            self._turns = _Turns()
            self._all = _Together([_Labelled(split, floats) for split in splits])

    def batches(self, order: Order, size: int, again: bool) -> Iterator[tuple[Any, Tensor, Tensor | None]]:
        """Yield inputs, targets and their rows (None of a stream, which begins `again` where it is short)."""
        if self._stream is not None:
            yield from ((x, y, None) for x, y in _even(self._streamed(self._stream, order, size, again), size))
            return
        assert order.rows is not None
        self._turns.begin(order, size)
        rows = iter(order.rows.split(size))
        for x, y in self._loader(0, self._all, batch_sampler=self._turns):
            yield x, y, next(rows)

    def _loader(self, key: int, data: Dataset[Any], **how: Any) -> DataLoader[Any]:
        """Return a loader, the one of the last epoch where workers are kept."""
        if key not in self._loaders or not self._keep:
            self._loaders[key] = DataLoader(
                data,
                num_workers=self._workers,
                collate_fn=self._collate,
                persistent_workers=self._keep,
                pin_memory=self._device.type == "cuda",
                **how,
            )
        return self._loaders[key]

    def _streamed(self, stream: _Stream, order: Order, size: int, again: bool) -> Iterator[tuple[Any, Tensor]]:
        """Yield as many samples as the order says, from the stream's beginning, over and over where it may."""
        given = 0
        while given < order.samples:
            before = given
            for x, y in self._pass(stream, order.seed + given, size):
                given += len(y)
                over = given - order.samples
                if over <= 0:
                    yield x, y
                elif again:
                    yield at(x, slice(-over)), y[:-over]
                if over > 0 or (again and over == 0):
                    break
            if given == before:
                raise HatrackError("an iterable Dataset gave no sample; let it give some at every pass.")
            if not again:
                break
        if given != order.samples and not again:
            raise HatrackError(
                f"an iterable Dataset gave {'more' if given > order.samples else given} samples where it has "
                f"{order.samples}; let it give as many at every pass, and divide them among workers (get_worker_info)."
            )

    def _pass(self, stream: _Stream, seed: int, size: int) -> Iterator[tuple[Any, Tensor]]:
        """Yield the batches of one pass over the stream."""
        stream.begin(seed)
        loaded = iter(self._loader(size, stream, batch_size=size))
        while True:
            with nullcontext() if self._workers else drawn_from(seed):
                batch = next(loaded, None)
            if batch is None:
                return
            yield batch
            seed += 1


def _even(batches: Iterator[tuple[Any, Tensor]], size: int) -> Iterator[tuple[Any, Tensor]]:
    """Yield batches of `size`: a worker's last one is filled up with the next, where samples are of one shape."""
    x: Any = None
    y: Tensor | None = None
    for new_x, new_y in batches:
        if y is None:
            x, y = new_x, new_y
        elif same_form(x, new_x) and shapes(x) == shapes(new_x) and y.shape[1:] == new_y.shape[1:]:
            x, y = mapped(lambda *parts: torch.cat(parts), x, new_x), torch.cat([y, new_y])
        else:
            yield x, y
            x, y = new_x, new_y
        while y is not None and len(y) >= size:
            yield (x, y) if len(y) == size else (at(x, slice(size)), y[:size])
            x, y = (None, None) if len(y) == size else (at(x, slice(size, None)), y[size:])
    if y is not None:
        yield x, y


class _Turns:
    """The batches of an epoch as lists of rows, each behind the seed that its samples draw from."""

    def begin(self, order: Order, size: int) -> None:
        self._order, self._size = order, size

    def __iter__(self) -> Iterator[list[int]]:
        assert self._order.rows is not None
        for number, rows in enumerate(self._order.rows.split(self._size)):
            yield [self._order.seed + number, *rows.tolist()]


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
            x, y = read(self._data[row])
        return mapped(as_floats, x) if self._floats else x, y


class _Together(ConcatDataset[Any]):
    """Several Datasets behind one another, asked for a batch at a time: a seed, and rows."""

    def __getitems__(self, turn: list[int]) -> list[Any]:
        seed, *rows = turn
        with drawn_from(seed):
            return [self[row] for row in rows]


class _Stream(IterableDataset[Any]):
    """A stream of (input, target) that begins anew with the seed it is given, also in workers that live on."""

    def __init__(self, split: Split) -> None:
        self._data: Any = split.dataset()
        self._raw = split.collate is not None
        self._seed = torch.zeros((), dtype=torch.long).share_memory_()

    def begin(self, seed: int) -> None:
        self._seed.fill_(seed)

    def __iter__(self) -> Iterator[Any]:
        seed, worker = int(self._seed), get_worker_info()
        if worker is not None:
            begin_at(seed + worker.id)
        tell_epoch(self._data, seed)
        for sample in self._data:
            yield sample if self._raw else read(sample)


def _collate_of(splits: Sequence[Split]) -> Callable[[list[Any]], Any]:
    given = {split.collate for split in splits}
    if given == {None}:
        return _collated
    if len(given) > 1:
        raise HatrackError("tasks that are learned together need one collate function for all.")
    (own,) = given
    assert own is not None
    return _Own(own)


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
        x, y = as_inputs(made[0]), torch.as_tensor(made[1])
        if count(x) != len(samples) or len(y) != len(samples):
            raise HatrackError(
                f"collate must return as many inputs and targets as there are samples, got {count(x)} and {len(y)} of "
                f"{len(samples)}."
            )
        return x, y
