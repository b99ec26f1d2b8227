"""Batches out of Datasets: in workers or here, from what has rows and from what only streams."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from hatrack import HatrackError
from hatrack.data.feed import Batch, Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split, split_of
from hatrack.targets import Classification

CPU = torch.device("cpu")


class Noisy(Dataset[Any]):
    """Draws from everywhere, and says which process it is read by."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, row: int) -> Any:
        drawn = float(torch.rand(())) + 2 * float(np.random.rand()) + 4 * random.random()
        return torch.tensor([row, drawn, os.getpid()], dtype=torch.float64), row % 2


class Shards(IterableDataset[Any]):
    """Shards of several lengths, shuffled, divided among the workers."""

    def __init__(self, lengths: tuple[int, ...] = (7, 2, 5, 1), divide: bool = True) -> None:
        self.lengths, self.divide, self.epochs = lengths, divide, list[int]()

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info() if self.divide else None
        mine = range(len(self.lengths)) if worker is None else range(worker.id, len(self.lengths), worker.num_workers)
        for shard in sorted(mine, key=lambda _: random.random()):
            for row in range(self.lengths[shard]):
                drawn = float(torch.rand(())) + float(np.random.rand())
                yield torch.tensor([100 * shard + row, drawn, os.getpid()], dtype=torch.float64), row % 2


ALL = {100 * shard + row for shard, length in enumerate((7, 2, 5, 1)) for row in range(length)}


def feed(data: Dataset[Any], workers: int = 0, *, collate: Any = None, length: int | None = None) -> Feed:
    split = split_of(data, "task 't', train", collate, length)
    return Feed([Part(0, split, Inputs(), Classification(2))], CPU, workers, training=True)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def column(batches: list[Batch], place: int) -> Tensor:
    return torch.cat([batch.x[:, place] for batch in batches])


def test_what_a_dataset_draws_depends_on_the_epoch_alone_not_on_who_reads_it() -> None:
    found = []
    for workers in (0, 1, 2):
        whole = feed(Noisy(), workers)
        epochs = [list(whole.batches(4, seeded(seed))) for seed in (1, 2)]
        again = list(feed(Noisy(), workers).batches(4, seeded(2)))
        for epoch in (*epochs, again):
            assert sorted(column(epoch, 0).tolist()) == list(range(11))
        assert torch.equal(column(epochs[1], 1), column(again, 1))
        assert not torch.equal(column(epochs[0], 1).sort().values, column(epochs[1], 1).sort().values)
        found.append(torch.cat([column(epoch, 1) for epoch in epochs]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_reading_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[union-attr]
    whole = feed(Noisy())
    order = whole.order(seeded(1))
    list(whole.epoch(order, 4))
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[union-attr]


@pytest.mark.parametrize("data", [Noisy(), Shards()])
def test_workers_live_on_from_epoch_to_epoch_also_where_one_was_broken_off(data: Dataset[Any]) -> None:
    whole = feed(data, 2)
    readers = []
    for seed in range(3):
        readers.append(set(column(list(whole.batches(4, seeded(seed))), 2).tolist()))
        for batch in whole.batches(4, seeded(seed)):  # and is left at the first batch
            assert len(batch.y) == 4
            break
    assert readers[0] == readers[1] == readers[2]
    assert os.getpid() not in readers[0]
    assert len(readers[0]) == 2


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_gives_every_sample_once_an_epoch_in_whole_batches(workers: int) -> None:
    whole = feed(Shards(), workers)
    assert len(whole) == 15
    orders = set()
    for seed in (1, 2, 1):
        batches = list(whole.batches(4, seeded(seed)))
        assert [len(batch.y) for batch in batches] == [4, 4, 4, 3]
        assert set(column(batches, 0).tolist()) == ALL
        orders.add((seed, tuple(column(batches, 1).tolist())))
    assert len(orders) == 2  # the same seed, the same numbers
    plain = list(whole.batches(4))
    assert set(column(plain, 0).tolist()) == ALL


def test_a_length_shortens_an_epoch_or_begins_the_stream_again() -> None:
    short = list(feed(Shards(), length=6).batches(4, seeded(1)))
    assert [len(batch.y) for batch in short] == [4, 2]
    for workers in (0, 2):
        long = list(feed(Shards(), workers, length=40).batches(16, seeded(1)))
        assert [len(batch.y) for batch in long] == [16, 16, 8]
        times = Counter(column(long, 0).tolist())
        assert set(times) == ALL
        assert min(times.values()) >= 2


def test_a_stream_is_told_of_every_pass() -> None:
    data = Shards()
    whole = feed(data)
    list(whole.batches(4, seeded(1)))
    list(whole.batches(4, seeded(1)))
    assert data.epochs[0] == data.epochs[1]
    list(whole.batches(4, seeded(2)))
    assert data.epochs[2] != data.epochs[1]


def test_a_stream_of_samples_that_only_a_collate_function_joins() -> None:
    def padded(samples: list[Any]) -> Any:
        longest = max(int(x[0]) % 100 + 1 for x, _ in samples)
        return torch.zeros(len(samples), longest), torch.tensor([y for _, y in samples])

    batches = list(feed(Shards(), collate=padded).batches(4, seeded(1)))
    assert [len(batch.y) for batch in batches] == [4, 4, 4, 3]


def test_streams_that_do_not_give_what_they_say_are_refused() -> None:
    split = split_of(Shards(divide=False), "task 't', test", None, None)
    test = Feed([Part(0, split, Inputs(), Classification(2))], CPU, 2)
    with pytest.raises(HatrackError, match=r"gave more samples where it has 15; .* among workers \(get_worker_info\)"):
        list(test.batches(4))
    shrinking = Shards()
    other = Feed([Part(0, split_of(shrinking, "t", None, None), Inputs(), Classification(2))], CPU)
    shrinking.lengths = (3,)
    with pytest.raises(HatrackError, match="gave 3 samples where it has 15"):
        list(other.batches(4))
    shrinking.lengths = ()
    with pytest.raises(HatrackError, match="gave no sample"):
        list(feed(Shards(()), length=4).batches(4, seeded(0)))


def test_what_needs_rows_refuses_a_stream() -> None:
    split = split_of(Shards(), "t", None, None)
    part = Part(0, split, Inputs(), Classification(2))
    with pytest.raises(HatrackError, match="cannot be chosen; give a map-style one, with __getitem__ and __len__"):
        split.take(torch.arange(2))
    beside = Part(1, Split(torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3).long()), Inputs(), Classification(2))
    with pytest.raises(HatrackError, match="learned together cannot be iterable Datasets"):
        Feed([part, beside], CPU, training=True)


def test_a_label_that_no_head_has_an_output_for_is_named() -> None:
    split = split_of(Shards(), "t", None, None)
    with pytest.raises(HatrackError, match=r"label 1 in the Dataset of task number 0 is outside 0\.\.0"):
        list(Feed([Part(0, split, Inputs(), Classification(1))], CPU).batches(4))


def test_collate_must_return_every_sample() -> None:
    with pytest.raises(HatrackError, match=r"collate must return as many inputs and targets .* got 1 and 1 of 4"):
        list(feed(Noisy(), collate=lambda samples: (samples[0][0][None], torch.tensor([0]))).batches(4, seeded(0)))
