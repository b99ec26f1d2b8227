from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils import shuffle

from hatrack.data.rows import fixed_test, groups_of, hold_out, hold_out_as_hat, rows_of_each, shuffled
from hatrack.errors import HatrackError

Y = np.array([2, 0, 1, 1, 0, 2, 2, 1, 0, 0])


@pytest.mark.parametrize(
    ("count", "seed", "order"),
    [
        (8, 0, [6, 2, 1, 7, 3, 0, 5, 4]),
        (8, 1, [7, 2, 1, 6, 0, 4, 3, 5]),
        (8, 2, [4, 1, 6, 2, 3, 7, 5, 0]),
        (8, 3, [5, 7, 4, 6, 3, 1, 0, 2]),
        (10, 0, [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]),
        (10, 1, [2, 9, 6, 4, 0, 3, 1, 7, 8, 5]),
    ],
)
def test_the_published_orders_come_out(count: int, seed: int, order: list[int]) -> None:
    assert shuffled(count, seed).tolist() == order


@pytest.mark.parametrize("seed", [0, 5, 1234])
def test_shuffled_is_scikit_learns_shuffle(seed: int) -> None:
    np.testing.assert_array_equal(shuffled(1000, seed), shuffle(np.arange(1000), random_state=seed))


def test_hats_validation_is_the_first_part_of_the_shuffled_rows() -> None:
    rows = np.arange(100, 200)
    parts = hold_out_as_hat(rows, 0.15, seed=3)
    order = shuffle(rows, random_state=3)
    np.testing.assert_array_equal(parts.valid, np.sort(order[:15]))
    np.testing.assert_array_equal(parts.train, np.sort(order[15:]))


@settings(max_examples=50)
@given(st.integers(2, 300), st.floats(0.01, 0.5), st.integers(0, 2**31 - 1), st.integers(0, 20))
def test_nothing_is_lost_or_shared_between_training_and_validation(
    count: int, share: float, seed: int, salt: int
) -> None:
    rows = np.arange(7, 7 + count)
    for parts in (hold_out(rows, share, seed, salt), hold_out_as_hat(rows, share, seed)):
        np.testing.assert_array_equal(np.sort(np.concatenate([parts.train, parts.valid])), rows)
        assert len(parts.valid) >= 1
        assert abs(len(parts.valid) - share * count) <= 1
    again = hold_out(rows, share, seed, salt)
    np.testing.assert_array_equal(again.train, hold_out(rows, share, seed, salt).train)


def test_seed_and_salt_both_change_what_is_held_out() -> None:
    rows = np.arange(100)
    held = [tuple(hold_out(rows, 0.2, seed, salt).valid) for seed in (0, 1) for salt in (0, 1)]
    assert len(set(held)) == 4


def test_a_single_row_cannot_be_divided() -> None:
    with pytest.raises(HatrackError, match="1 training sample"):
        hold_out(np.arange(1), 0.1, seed=0)


def test_the_fixed_test_part_takes_a_share_of_every_class() -> None:
    y = np.repeat([0, 1, 2], [10, 20, 30])
    train, test = fixed_test(y, 0.2)
    assert np.bincount(y[test]).tolist() == [2, 4, 6]
    assert sorted([*train, *test]) == list(range(60))


def test_rows_by_class() -> None:
    each = rows_of_each(Y, np.array([0, 2, 3, 6, 9]), 4)
    assert [rows.tolist() for rows in each] == [[9], [2, 3], [0, 6], []]


def test_groups_are_equal_or_refused() -> None:
    assert groups_of(range(6), 3, "toy") == [[0, 1], [2, 3], [4, 5]]
    for tasks in (4, 0, 7):
        with pytest.raises(HatrackError, match=f"toy: 6 classes cannot be divided into {tasks} tasks"):
            groups_of(range(6), tasks, "toy")
