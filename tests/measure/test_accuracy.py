from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatrack.errors import HatrackError
from hatrack.measure import (
    average_accuracy,
    backward_transfer,
    difference_to_ncl,
    differences_to_ncl,
    forgetting,
    forward_transfer,
    forward_transfers,
)

# Made by hand: task 1 falls, rises and falls; task 2 improves after it was learned.
HAND = [[0.90], [0.70, 0.80], [0.80, 0.85, 0.60]]


def test_average_accuracy_is_the_mean_of_the_last_row() -> None:
    assert average_accuracy(HAND) == pytest.approx((0.80 + 0.85 + 0.60) / 3)


def test_backward_transfer_is_the_mean_change_since_a_task_was_learned() -> None:
    assert backward_transfer(HAND) == pytest.approx(((0.80 - 0.90) + (0.85 - 0.80)) / 2)


def test_forgetting_is_the_mean_fall_from_the_best_earlier_accuracy() -> None:
    assert forgetting(HAND) == pytest.approx(((0.90 - 0.80) + (0.80 - 0.85)) / 2)


def test_forgetting_looks_at_all_rows_before_the_last() -> None:
    assert forgetting([[0.5], [0.9, 0.4], [0.6, 0.4, 0.1]]) == pytest.approx(((0.9 - 0.6) + (0.4 - 0.4)) / 2)


def test_weighted_figures_weigh_by_test_size() -> None:
    sizes = [100, 300, 600]
    assert average_accuracy(HAND, sizes) == pytest.approx((80 + 255 + 360) / 1000)
    wanted = (100 * (0.80 - 0.90) + 300 * (0.85 - 0.80) + 600 * 0) / 1000 * 3 / 2
    assert backward_transfer(HAND, sizes) == pytest.approx(wanted)


def test_equal_sizes_weigh_nothing() -> None:
    assert average_accuracy(HAND, [7, 7, 7]) == pytest.approx(average_accuracy(HAND))
    assert backward_transfer(HAND, [7, 7, 7]) == pytest.approx(backward_transfer(HAND))


def test_forward_transfer_compares_with_a_network_a_task() -> None:
    one = [0.85, 0.85, 0.50]
    assert forward_transfers(HAND, one) == pytest.approx([0.05, -0.05, 0.10])
    assert forward_transfer(HAND, one) == pytest.approx(0.1 / 3)


def test_the_difference_to_ncl_compares_last_rows() -> None:
    ncl = [[0.9], [0.4, 0.8], [0.3, 0.5, 0.65]]
    assert differences_to_ncl(HAND, ncl) == pytest.approx([0.5, 0.35, -0.05])
    assert difference_to_ncl(HAND, ncl) == pytest.approx(0.8 / 3)


def test_a_single_task_has_neither_transfer_back_nor_forgetting() -> None:
    assert average_accuracy([[0.4]]) == 0.4
    assert backward_transfer([[0.4]]) is None
    assert backward_transfer([[0.4]], [10]) is None
    assert forgetting([[0.4]]) is None


@given(st.integers(2, 8), st.integers(0, 1000))
def test_the_measures_agree_with_numpy_over_any_matrix(tasks: int, seed: int) -> None:
    full = np.tril(np.random.default_rng(seed).random((tasks, tasks)))
    ragged = [row[: t + 1].tolist() for t, row in enumerate(full)]
    last, own = full[-1], np.diag(full)
    assert average_accuracy(ragged) == pytest.approx(last.mean())
    assert backward_transfer(ragged) == pytest.approx((last - own)[:-1].mean())
    # The zeros above the diagonal never are a maximum of accuracies.
    assert forgetting(ragged) == pytest.approx((full[:-1].max(axis=0) - last)[:-1].mean())


@pytest.mark.parametrize("bad", [[], [[0.1, 0.2]], [[0.1], [0.2]], [[0.1], [0.2, 0.3], [0.1, 0.2]]])
def test_what_is_no_ragged_matrix_is_refused(bad: Any) -> None:
    for measure in (average_accuracy, backward_transfer, forgetting):
        with pytest.raises(HatrackError, match="rows of 1, 2, 3"):
            measure(bad)


def test_runs_of_other_lengths_are_refused() -> None:
    with pytest.raises(HatrackError, match="ONE has 2 tasks, this run 3"):
        forward_transfer(HAND, [0.1, 0.2])
    with pytest.raises(HatrackError, match="NCL has 2 tasks, this run 3"):
        difference_to_ncl(HAND, HAND[:2])
    with pytest.raises(HatrackError, match="3 tasks need as many test-set sizes"):
        average_accuracy(HAND, [1, 2])
    with pytest.raises(HatrackError, match="sizes above 0"):
        average_accuracy(HAND, [1, 2, 0])
