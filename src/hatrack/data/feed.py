"""Samples on their way to the network: resident on the device as they are stored, prepared batch by batch.

Small-image sets stay on the device as uint8 and are normalised there. A Dataset goes through a DataLoader (loading.py).
Several tasks can feed together (joint training, replay): then every sample carries the number of its task. Samplers and
augmentations have their say in the batches of a training epoch, and nowhere else: what is read in stored order, for
validation, test, importances or a memory, are the samples as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hatrack.data.augmenting import Augmentation, augmenting
from hatrack.data.draws import new_seed
from hatrack.data.inputs import Inputs, as_floats
from hatrack.data.loading import Loading
from hatrack.data.order import Order, Sampling
from hatrack.data.packing import Packing
from hatrack.data.samples import Split
from hatrack.errors import HatrackError
from hatrack.targets import Target
from hatrack.tree import count, form, leaves, mapped, shapes


class Batch(NamedTuple):
    """Prepared inputs, targets; the task of each sample where a batch mixes tasks, and its weight where it has one.

    Where the tasks' targets are not of one shape and type, `y` holds them packed.
    """

    x: Any
    y: Tensor
    source: Tensor | None = None
    weights: Tensor | None = None
    packing: Packing | None = None

    def tensors(self) -> list[Tensor]:
        """Return all that there are."""
        return [*leaves(self.x), *(t for t in (self.y, self.source, self.weights) if t is not None)]

    def of(self, task: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return which samples of a batch that mixes tasks are of this one, their targets, and their weights."""
        assert self.source is not None
        rows = self.source == task
        y = self.y[rows]
        y = y if self.packing is None else self.packing.unpacked(task, y)
        return rows, y, None if self.weights is None else self.weights[rows]


class Part(NamedTuple):
    """The samples of one task, its number, and what it predicts; how they are augmented and drawn in training."""

    task: int
    split: Split
    inputs: Inputs
    target: Target
    augment: Augmentation | None = None
    sampler: Sampling | None = None


class Feed:
    """Batches from one task or several; `training`: with the weights of their samples; `keep`: used every epoch."""

    def __init__(
        self,
        parts: Sequence[Part],
        device: torch.device,
        workers: int = 0,
        training: bool = False,
        keep: bool = False,
    ) -> None:
        self._parts = parts
        self._device = device
        distinct = list(dict.fromkeys(part.inputs for part in parts))
        self._prepare = [inputs.on(device) for inputs in distinct]
        self._mixed = len(parts) > 1
        self._which = torch.zeros(1 + max(part.task for part in parts), dtype=torch.long, device=device)
        for part in parts:
            self._which[part.task] = distinct.index(part.inputs)
        lengths = torch.tensor([len(part.split) for part in parts])
        self._length = int(lengths.sum())
        self._source = torch.repeat_interleave(torch.tensor([p.task for p in parts]), lengths * self._mixed)
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
            targets = {part.task: _soft(part, y) for part, (_, _, y) in zip(parts, placed, strict=True)}
            packing = Packing(targets)
            self._packing = packing if packing.needed else None
            self._y = torch.cat([y if self._packing is None else packing.packed(y) for y in targets.values()])
            self._source = self._source.to(device)
            self._weights = None if self._weights is None else self._weights.to(device)
        else:
            self._loading = Loading(parts, device, workers, self._uneven, keep or training)
        self._augmenting = augmenting(parts, self._packing)

    def __len__(self) -> int:
        return self._length

    def __deepcopy__(self, memo: dict[int, Any]) -> Feed:
        return self  # samples never change

    @cached_property
    def sample_size(self) -> int:
        """The number of values in one input."""
        x = self._x if self.resident else self._parts[0].split.first(1)
        return sum(part.shape[1:].numel() for part in leaves(x))

    @property
    def streams(self) -> bool:
        """Whether samples come from an iterable Dataset, of which an epoch may take more or fewer than a pass gives."""
        return self._parts[0].split.streams

    @property
    def recordable(self) -> bool:
        """Whether a training batch is made on the device alone: then a step can be recorded from its rows on."""
        return self._augmenting is None or self._augmenting.recordable

    def steps(self, size: int) -> int:
        """Return the number of batches of `size` that all samples make; the last one may be smaller."""
        return -(-len(self) // size)

    def order(self, generator: torch.Generator | None = None) -> Order:
        """Return an epoch to come: shuffled by `generator` or drawn by samplers, as stored without one."""
        if self.streams:
            return Order(None, len(self), new_seed(generator))
        rows = torch.arange(len(self)) if generator is None else self._drawn(generator)
        return Order(rows, len(rows), 0 if self.resident else new_seed(generator))

    def _drawn(self, generator: torch.Generator) -> Tensor:
        if all(part.sampler is None for part in self._parts):
            return torch.randperm(len(self), generator=generator)
        first, drawn = 0, []
        for part, strata in zip(self._parts, self._strata, strict=True):
            count, sampler = len(part.split), part.sampler
            every = torch.arange(count) if sampler is None else sampler.rows(generator, count, strata)
            drawn.append(first + every)
            first += count
        rows = torch.cat(drawn)
        return rows[torch.randperm(len(rows), generator=generator)] if self._mixed else rows

    @cached_property
    def _strata(self) -> list[Tensor | None]:
        """The classes of the tasks that are drawn from in balance."""
        found: list[Tensor | None] = []
        for part in self._parts:
            labels = None if part.sampler is None or part.sampler.needs_all else part.split.labels
            found.append(None if labels is None else part.target.strata(labels).cpu())
        return found

    def gather(self, rows: Tensor, training: bool = False) -> Batch:
        """Return the resident samples at `rows`, which are on the device: no host round trip."""
        places = self._rows.index_select(0, rows)
        x = mapped(lambda part: part.index_select(0, places), self._x)
        return self._batch(
            x,
            self._y.index_select(0, rows),
            self._source.index_select(0, rows) if self._mixed else None,
            None if self._weights is None else self._weights.index_select(0, rows),
            training,
        )

    def labels(self) -> Tensor:
        """Return all targets of one task in their stored order, of a stream in that of a pass."""
        if self.resident:
            return self._y
        return torch.cat([batch.y for batch in self.batches(1024)])

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Yield all samples once, as stored; with a generator, those of a training epoch."""
        yield from self.epoch(self.order(generator), size, training=generator is not None)

    def epoch(self, order: Order, size: int, training: bool = True) -> Iterator[Batch]:
        """Yield the samples in an order; in training, augmented."""
        if not self.resident:
            yield from self._loaded(order, size, training)
            return
        assert order.rows is not None
        for rows in order.rows.to(self._device).split(size):
            yield self.gather(rows, training)

    def _batch(self, x: Any, y: Tensor, source: Tensor | None, weights: Tensor | None, training: bool) -> Batch:
        if training and self._augmenting is not None:
            x, y = self._augmenting(x, y, source)
        if source is None or len(self._prepare) == 1:
            return Batch(self._prepare[0](x), y, source, weights, self._packing)
        prepared = [prepare(x) for prepare in self._prepare]
        rows = torch.arange(len(y), device=y.device)
        chosen = mapped(lambda *parts: torch.stack(parts)[self._which[source], rows], *prepared)
        return Batch(chosen, y, source, weights, self._packing)

    def _loaded(self, order: Order, size: int, training: bool) -> Iterator[Batch]:
        for x, y, rows in self._loading.batches(order, size, again=training):
            y = self._checked(y, rows)
            source = self._source[rows].to(self._device) if self._mixed and rows is not None else None
            weights = None if self._weights is None or rows is None else self._weights[rows].to(self._device)
            x = mapped(lambda part: part.to(self._device, non_blocking=True), x)
            yield self._batch(x, y.to(self._device, non_blocking=True), source, weights, training)

    def _checked(self, y: Tensor, rows: Tensor | None) -> Tensor:
        """Refuse targets that a head has no output for, here on the host: a device would have to be waited for."""
        alone = not self._mixed or rows is None
        sources = torch.full((len(y),), self._parts[0].task) if alone else self._source.cpu()[rows]
        read = y
        for number, part in enumerate(self._parts):
            mine = sources == part.task
            named = f"the Dataset of task number {part.task}"
            own = part.target.read(y[mine], f"{named}: labels")
            found = part.target.wrong(own) if len(own) else None
            if found is not None:
                row, why = found
                what = (
                    f"label {int(own[row])}"
                    if own.ndim == 1
                    else f"sample {row if rows is None else int(rows[mine][row])}"
                )
                raise HatrackError(
                    f"{what} in {named} {why}; labels count from 0 within a task: give Task(..., classes=N)."
                )
            own = _soft(part, own)
            read = own.new_zeros(len(y), *own.shape[1:]) if number == 0 else read
            if own.shape[1:] != read.shape[1:]:
                raise HatrackError(
                    f"tasks that are learned together out of Datasets need targets of one shape, got "
                    f"{tuple(read.shape[1:])} and {tuple(own.shape[1:])}; give arrays, or leave mixup out."
                )
            read[mine] = own
        return read


def _soft(part: Part, y: Tensor) -> Tensor:
    """Return targets of which a mean can be taken, where samples are mixed."""
    return part.target.soft(y) if part.augment is not None and part.augment.mixes else y


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
