"""Forecasts of room against what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hatrack.measure.forecast import HORIZON, Range, ahead, appetites, fitting
from hatrack.measure.shares import Share


def test_tasks_that_take_the_same_part_of_what_is_free() -> None:
    """A quarter of what is free each: the free share is ¾ to the number of tasks where β = 0 is drawn."""
    before = [[0.75**t] for t in range(6)]
    took = [[0.25 * 0.75**t] for t in range(6)]
    paths = ahead(before, took, [0.75**6])
    assert paths.shape[1:] == (HORIZON + 1, 1)
    exact = 0.75 ** (6 + np.arange(HORIZON + 1))
    assert np.isclose(paths[:, :, 0], exact).all(1).mean() > 0.25  # the draws of β = 0, a third of all
    found = fitting(paths, 0.05)
    # ¾^n ≥ 5 % up to n = 10: tasks number 7 to 11 find it, five of them
    assert found.low == 5
    assert found.middle >= 5


def test_the_scarcest_layer_decides() -> None:
    paths = np.stack([np.linspace(0.5, 0.3, 21), np.linspace(0.2, 0.0, 21)], 1)[None]
    assert fitting(paths, 0.05) == Range(16, 16, 16)  # 0.20, 0.19, …, 0.05
    assert fitting(paths[:, :, :1], 0.05) == Range(HORIZON, HORIZON, HORIZON)


def test_where_nothing_is_taken_nothing_runs_out_and_where_all_is_nothing_fits() -> None:
    assert fitting(ahead([[1.0], [0.9]], [[0.1], [0.0]], [0.9]), 0.05).high == HORIZON
    assert fitting(ahead([[1.0], [0.02]], [[0.98], [0.0]], [0.02]), 0.05) == Range(0, 0, 0)
    assert str(Range(3, 5, HORIZON)) == "5 (3 to 200 or more)"
    assert str(Range(4, 4, 4)) == "4"


def test_a_layer_without_room_is_no_trouble() -> None:
    paths = ahead([[1.0, 0.0], [0.5, 0.0]], [[0.5, 0.0], [0.1, 0.0]], [0.4, 0.0])
    assert np.isfinite(paths).all()
    assert fitting(paths, 0.05).high == 0


def shares(*layers: float) -> Share:
    return {"total": sum(layers) / len(layers), "layers": {str(i): share for i, share in enumerate(layers)}}


def test_appetites_by_hand_across_a_growth() -> None:
    before, took = appetites([shares(0.5, 0.2), shares(0.8, 0.3), shares(0.6, 0.4)], {2: shares(0.4, 0.25)})
    assert before == [[1.0, 1.0], [0.5, 0.8], [0.6, 0.75]]
    assert took == [[0.5, 0.2], [pytest.approx(0.3), pytest.approx(0.1)], [pytest.approx(0.2), pytest.approx(0.15)]]
