"""The order of an epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.order import balanced, sampling
from hatrack.data.samples import Split
from hatrack.targets import Classification


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("counts", [[3, 30], [1, 2, 50], [7], [5, 5, 6], [2, 1]])
def test_classes_are_drawn_equally_often_and_none_of_a_class_twice_before_all_of_it(counts: list[int]) -> None:
    y = torch.repeat_interleave(torch.tensor([4 * c for c in range(len(counts))]), torch.tensor(counts))
    y = y[torch.randperm(len(y), generator=seeded(9))]
    rows = balanced(y, seeded())
    assert len(rows) == len(y)
    drawn = [rows[y[rows] == label] for label in y.unique()]
    lengths = [len(own) for own in drawn]
    assert max(lengths) - min(lengths) <= 1
    for own, count in zip(drawn, sorted(counts) if counts == [7] else counts, strict=True):
        times = np.bincount(own.numpy(), minlength=len(y))[own.unique().numpy()]
        assert times.max() - times.min() <= 1
        assert len(own.unique()) == min(count, len(own))
    assert not torch.equal(rows, balanced(y, seeded(1))) or len(y) < 4
    assert torch.equal(rows, balanced(y, seeded()))


@pytest.mark.parametrize(
    "given",
    [
        RandomSampler(range(9)),
        RandomSampler(range(9), generator=seeded(7)),
        SubsetRandomSampler([1, 3, 5]),
        DistributedSampler(range(9), num_replicas=3, rank=1),  # type: ignore[arg-type]
        lambda generator: torch.randperm(9, generator=generator)[:4],
        lambda generator: np.random.permutation(9),
    ],
)
def test_a_sampler_draws_from_the_epoch_alone(given: object) -> None:
    own = sampling(given, "task 't'", "t")
    first = own.rows(seeded(1), 9, None)
    torch.rand(5), np.random.rand(3)
    assert torch.equal(first, own.rows(seeded(1), 9, None))
    assert any(not torch.equal(first, own.rows(seeded(seed), 9, None)) for seed in range(2, 6))


def test_a_sampler_keeps_its_own_order() -> None:
    own = sampling(SequentialSampler(range(9)), "task 't'", "t")
    assert own.rows(seeded(), 9, None).tolist() == list(range(9))


def test_what_several_tasks_draw_is_mixed_and_counted() -> None:
    y = (torch.arange(10) > 7).long()
    inputs, target = Inputs(), Classification(2)
    parts = [
        Part(0, Split(torch.zeros(10, 1), y), inputs, target, None, sampling("balanced", "a", "a")),
        Part(1, Split(torch.ones(10, 1), y), inputs, target, None, sampling(lambda g: [9, 9, 9], "b", "b")),
        Part(2, Split(torch.full((4, 1), 2.0), y[:4]), inputs, target),
    ]
    feed = Feed(parts, torch.device("cpu"), training=True)
    order = feed.order(seeded())
    assert len(order) == 17
    assert order.steps(5) == 4
    batches = list(feed.epoch(order, 5))
    source = torch.cat([batch.source for batch in batches if batch.source is not None])
    labels = torch.cat([batch.y for batch in batches])
    assert torch.bincount(source).tolist() == [10, 3, 4]
    assert int(labels[source == 0].sum()) == 5
    assert labels[source == 1].tolist() == [1, 1, 1]
    assert len({int(t) for t in source[:10]}) > 1
    assert len(feed.order()) == 24


def test_without_a_sampler_the_order_is_the_one_that_it_always_was() -> None:
    feed = Feed(
        [Part(0, Split(torch.zeros(50, 1), torch.zeros(50).long()), Inputs(), Classification(1))], torch.device("cpu")
    )
    rows = feed.order(seeded(3)).rows
    assert rows is not None
    assert torch.equal(rows, torch.randperm(50, generator=seeded(3)))
