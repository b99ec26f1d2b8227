"""The episodic memory: what it keeps, what it draws, what it saves."""

from __future__ import annotations

import numpy as np
import torch
from tiny import feed, samples

from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.methods.parts.memory import EpisodicMemory
from hatrack.targets import Classification, Regression

CPU = torch.device("cpu")


def rows(x: torch.Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in x.tolist()}


def filled() -> tuple[EpisodicMemory, list[tuple[np.ndarray, np.ndarray]]]:
    memory = EpisodicMemory(torch.device("cpu"))
    sets = [samples(0, n=1500, classes=3), samples(1, n=30, classes=2)]
    torch.manual_seed(0)
    for task, (x, y) in enumerate(sets):
        memory.add(feed(x, y, task), task, per_class=20, target=Classification())
    return memory, sets


def test_keeps_so_many_of_each_class_of_each_task_with_their_labels() -> None:
    memory, sets = filled()
    x, y, source = memory.draw(10_000)[:3]
    for task, (all_x, all_y) in enumerate(sets):
        for label in np.unique(all_y):
            mine = (source == task) & (y == int(label))
            there = rows(torch.from_numpy(all_x[all_y == label]))
            assert int(mine.sum()) == min(20, (all_y == label).sum())
            assert len(rows(x[mine])) == int(mine.sum())
            assert rows(x[mine]) <= there
    first = rows(torch.from_numpy(sets[0][0][:200]))
    assert not rows(x[source == 0]) <= first  # chosen at random, not the first to come


def test_draws_without_repeating_and_from_all_tasks() -> None:
    memory, _ = filled()
    torch.manual_seed(3)
    drawn = [memory.draw(30) for _ in range(20)]
    assert all(len(rows(b.x)) == 30 == len(b.y) for b in drawn)
    assert len({frozenset(rows(b.x)) for b in drawn}) == 20
    share = torch.cat([b.source for b in drawn]).double().mean()
    assert abs(float(share) - 30 / len(memory)) < 0.1


def test_state_round_trip() -> None:
    memory, _ = filled()
    other = EpisodicMemory(torch.device("cpu"))
    assert len(other) == 0
    assert other.state() == {}
    other.load_state({}, 0, CPU)
    assert len(other) == 0
    other.load_state(memory.state(), 2, CPU)
    for a, b in zip(other.draw(1000)[:3], memory.draw(1000)[:3], strict=True):
        assert torch.equal(a, b)


def test_targets_of_two_shapes_come_back_as_they_were_given() -> None:
    memory, _ = filled()
    rng = np.random.default_rng(0)
    x, figures = rng.normal(size=(40, 6)), rng.normal(size=(40, 2)).astype(np.float32)
    named = Part(2, Split(torch.from_numpy(x), torch.from_numpy(figures)), Inputs(), Regression(2))
    memory.add(Feed([named], CPU), 2, per_class=20, target=Regression(2))
    batch = memory.draw(10_000)
    assert batch.y.shape == (len(memory), 2)
    rows_of, y, _ = batch.of(2)
    known = {tuple(row): tuple(f) for row, f in zip(x.tolist(), figures.tolist(), strict=True)}
    drawn = zip(batch.x[rows_of].tolist(), y.tolist(), strict=True)
    assert int(rows_of.sum()) == 20
    assert all(known[tuple(row)] == tuple(f) for row, f in drawn)
    _, labels, _ = batch.of(0)
    assert labels.dtype == torch.int64
    assert labels.bincount().tolist() == [20, 20, 20]
