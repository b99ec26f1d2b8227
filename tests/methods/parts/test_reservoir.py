"""The reservoir: against algorithm R sample by sample, and against the probabilities it promises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.methods.parts.reservoir import Reservoir

CPU = torch.device("cpu")


def numbered(*numbers: int) -> Batch:
    """Samples that say who they are, in input and label."""
    y = torch.tensor(numbers)
    return Batch(y[:, None].double() * torch.ones(2), y)


def fresh(size: int, width: int = 1) -> Reservoir:
    made = Reservoir(CPU, size)
    made.begin_task(0, numbered(0), torch.zeros(1, width, dtype=torch.float64))
    made.begin_epoch()
    return made


def stream(into: Reservoir, count: int, batch: int) -> None:
    for start in range(0, count, batch):
        numbers = range(start, min(start + batch, count))
        into.add(numbered(*numbers), 0, torch.tensor(numbers, dtype=torch.float64)[:, None] / 8)


def inside(reservoir: Reservoir) -> list[int]:
    return reservoir.held["y"][: min(int(reservoir.held["seen"]), reservoir.size), 0].long().tolist()


@pytest.mark.parametrize(("size", "batch"), [(3, 50), (7, 4), (10, 1), (64, 64)])
def test_a_batch_is_placed_as_if_its_samples_came_one_by_one(size: int, batch: int) -> None:
    reservoir, count = fresh(size), 150
    torch.manual_seed(0)
    stream(reservoir, count, batch)
    torch.manual_seed(0)
    expected: list[int] = []
    number = 0
    while number < count:
        for u in torch.rand(min(batch, count - number), dtype=torch.float64).tolist():
            place = int(u * (number + 1))
            if number < size:
                expected.append(number)
            elif place < size:
                expected[place] = number
            number += 1
    assert inside(reservoir) == expected
    assert len(expected) == size
    assert expected != list(range(size))


def test_every_sample_of_the_stream_is_as_likely_to_be_held() -> None:
    size, count, times = 10, 40, 2000
    torch.manual_seed(1)
    held, pairs = np.zeros(count), np.zeros((count, count))
    for _ in range(times):
        reservoir = fresh(size)
        stream(reservoir, count, 16)
        one = np.bincount(inside(reservoir), minlength=count)
        assert one.sum() == size
        assert one.max() == 1
        held += one
        pairs += np.outer(one, one)
    for found, p in (
        (held / times, size / count),
        (pairs[np.triu_indices(count, 1)] / times, size * (size - 1) / count / (count - 1)),
    ):
        z = (found - p) / np.sqrt(p * (1 - p) / times)
        assert np.abs(z).max() < 4.5  # of 40, or 780, normal figures
        assert 0.8 < z.std() < 1.2


def test_what_belongs_together_stays_together_and_the_size_is_never_exceeded() -> None:
    reservoir = fresh(5)
    torch.manual_seed(2)
    for start in range(0, 60, 3):
        reservoir.add(numbered(start, start + 1, start + 2), start // 30, torch.full((3, 1), float(start)))
        batch, z = reservoir.draw(1000)
        assert batch.source is not None
        assert len(batch.y) == len(z) == 5
        assert len(set(batch.y.tolist())) == min(5, start + 3)
        assert torch.equal(batch.x, batch.y[:, None].double() * torch.ones(2))
        assert torch.equal(batch.source, batch.y // 30)
        assert torch.equal(z[:, 0], (batch.y // 3 * 3).double())
    assert int(reservoir.held["seen"]) == 60


def test_a_draw_repeats_nobody_and_two_draws_know_nothing_of_each_other() -> None:
    size, count, times = 20, 5, 3000
    reservoir = fresh(size)
    torch.manual_seed(3)
    stream(reservoir, size, size)
    overlaps = np.zeros(times)
    often = np.zeros(size)
    for i in range(times):
        first, second = (set(reservoir.draw(count)[0].y.tolist()) for _ in range(2))
        assert len(first) == len(second) == count
        overlaps[i] = len(first & second)
        often += np.bincount(list(first), minlength=size)
    share = count / size
    variance = count * share * (1 - share) * (size - count) / (size - 1)  # hypergeometric
    assert abs(overlaps.mean() - count * share) < 4.5 * np.sqrt(variance / times)
    assert np.abs(often / times - share).max() < 4.5 * np.sqrt(share * (1 - share) / times)


def test_while_few_are_held_all_of_them_are_drawn_in_turn() -> None:
    reservoir = fresh(20)
    stream(reservoir, 3, 3)
    drawn = reservoir.draw(7)[0].y.tolist()
    assert sorted(drawn[:3]) == [0, 1, 2]
    assert drawn == [drawn[i % 3] for i in range(7)]
    assert len(fresh(4).draw(7)[0].y) == 4


def targets(reservoir: Reservoir, tasks: Sequence[int]) -> dict[int, torch.Tensor]:
    batch, _ = reservoir.draw(1000)
    return {task: batch.of(task)[1] for task in tasks}


def test_state_round_trip_and_tasks_whose_targets_are_of_other_shapes() -> None:
    reservoir = fresh(30, width=2)
    labels, pictures = torch.tensor([2, 0]), torch.rand(3, 2, 4)
    x = torch.rand(3, 2, dtype=torch.float64)
    reservoir.add(Batch(x[:2], labels), 0, torch.ones(2, 2))
    reservoir.begin_task(1, Batch(x[:1], pictures[:1]), torch.zeros(1, 5))
    reservoir.add(Batch(x, pictures), 1, torch.full((3, 5), 2.0))
    other = Reservoir(CPU, 30)
    other.load_state(reservoir.state(), 2, CPU)
    other.begin_epoch()
    assert not other.empty
    for each in (reservoir, other):
        torch.manual_seed(0)
        found = targets(each, (0, 1))
        assert found[0].dtype == torch.int64
        assert set(found[0].tolist()) == {0, 2}
        assert all(any(torch.equal(picture, one) for one in pictures) for picture in found[1])
        rows = each.held["source"][:5] == 0
        assert torch.equal(each.held["z"][:5][rows], torch.tensor([[1.0, 1, 0, 0, 0]] * 2, dtype=torch.float64))
    assert all(torch.equal(t, other.held[name]) for name, t in reservoir.held.items())


def test_inputs_of_another_shape_or_type_are_refused_and_change_nothing() -> None:
    reservoir = fresh(4)
    before = set(reservoir.held)
    y = torch.tensor([0])
    for x in (torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, 2), {"a": torch.zeros(1, 2)}):
        with pytest.raises(HatrackError, match=r"inputs of one shape and type, got \(2,\) torch.float64 and then"):
            reservoir.begin_task(1, Batch(x, y), torch.zeros(1, 1))
        assert set(reservoir.held) == before
