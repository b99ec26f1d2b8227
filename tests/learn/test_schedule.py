"""The patience schedule against the paper's wording, step by step."""

from __future__ import annotations

import pytest

from hatrack.learn.schedule import Patience


def test_lr_is_divided_after_the_patience_and_training_ends_below_the_minimum() -> None:
    schedule = Patience(lr=0.05, factor=3.0, patience=5, minimum=1e-4)
    assert schedule.record(1.0)
    epochs, seen = 0, []
    while not schedule.over:
        assert not schedule.record(1.0)  # equal is not lower
        epochs += 1
        if schedule.stalled == 0:
            seen.append(schedule.lr)
    assert seen == pytest.approx([0.05 / 3**k for k in range(1, 7)])  # the published code's six drops
    assert epochs == 6 * 5


def test_an_improvement_starts_the_count_again() -> None:
    schedule = Patience(lr=1.0, factor=2.0, patience=2, minimum=0.1)
    for loss, lr in ((3.0, 1.0), (3.5, 1.0), (2.9, 1.0), (3.0, 1.0), (3.0, 0.5), (2.0, 0.5), (2.5, 0.5), (2.5, 0.25)):
        schedule.record(loss)
        assert schedule.lr == lr


def test_every_task_starts_with_a_fresh_schedule() -> None:
    first = Patience(0.05, 3.0, 5, 1e-4)
    for _ in range(20):
        first.record(1.0)
    second = Patience(0.05, 3.0, 5, 1e-4)
    assert (second.lr, second.best, second.stalled) == (0.05, float("inf"), 0)


def test_the_minimum_itself_is_still_trained_at() -> None:
    schedule = Patience(lr=1.0, factor=2.0, patience=1, minimum=0.25)
    overs = []
    for _ in range(3):
        schedule.drop()
        overs.append((schedule.lr, schedule.over))
    assert overs == [(0.5, False), (0.25, False), (0.125, True)]
