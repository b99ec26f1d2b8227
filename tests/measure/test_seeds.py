from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel, wilcoxon

from hatrack.errors import HatrackError
from hatrack.measure import interval, paired

VALUES = [0.62, 0.66, 0.64, 0.70, 0.63]
OTHER = [0.60, 0.61, 0.66, 0.65, 0.59]


def test_the_interval_is_students() -> None:
    found = interval(VALUES)
    # t(0.975, 4) from the printed table.
    assert found.half == pytest.approx(2.776445 * np.std(VALUES, ddof=1) / np.sqrt(5), rel=1e-6)
    assert (found.mean, found.n) == (pytest.approx(np.mean(VALUES)), 5)


def test_the_published_interval_divides_by_n() -> None:
    found = interval(VALUES, ddof=0)
    assert found.half == pytest.approx(2.776445 * np.std(VALUES) / np.sqrt(5), rel=1e-6)


def test_another_level() -> None:
    assert interval(VALUES, level=0.9).half == pytest.approx(2.131847 * np.std(VALUES, ddof=1) / np.sqrt(5), rel=1e-6)


def test_one_seed_has_no_interval_and_none_is_refused() -> None:
    assert interval([0.5]).half is None
    with pytest.raises(HatrackError, match="at least one value"):
        interval([])


def test_equal_values_have_an_interval_of_width_zero() -> None:
    assert interval([0.5, 0.5, 0.5]).half == 0


def test_paired_tests_agree_with_scipy() -> None:
    found = paired(VALUES, OTHER)
    assert found.t == pytest.approx(ttest_rel(VALUES, OTHER).pvalue)
    assert found.wilcoxon == pytest.approx(wilcoxon(np.subtract(VALUES, OTHER)).pvalue)
    assert found.difference == interval([a - b for a, b in zip(VALUES, OTHER, strict=True)])


def test_pairing_finds_what_the_spread_over_seeds_hides() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(0.6, 0.2, 10)
    better = seeds + 0.01 + rng.normal(0, 0.001, 10)
    assert paired(better.tolist(), seeds.tolist()).t < 1e-6
    assert paired(better.tolist(), seeds.tolist()).wilcoxon == pytest.approx(2 / 2**10)


def test_equal_runs_cannot_be_told_apart() -> None:
    found = paired(VALUES, VALUES)
    assert (found.t, found.wilcoxon, found.difference.half) == (1, 1, 0)


def test_some_equal_seeds_give_no_warning_and_no_nan() -> None:
    assert 0 < paired(VALUES, [*VALUES[:3], 0.1, 0.2]).wilcoxon <= 1


@pytest.mark.parametrize("values", [[0.5, 0.75, 1.0], [0.7, 0.8, 0.9], [7000.1, 8000.1, 9000.1]])
def test_a_difference_that_is_always_the_same_has_no_t(values: list[float]) -> None:
    constant = paired(values, [value - values[0] / 7 for value in values])
    assert constant.t is None
    assert (constant.difference.mean, constant.difference.half) == (pytest.approx(values[0] / 7), 0)
    assert constant.wilcoxon == pytest.approx(0.25)


def test_rounding_makes_no_difference() -> None:
    noisy = 0.1 + 0.2
    assert noisy != 0.3
    found = paired([0.3] * 3, [noisy] * 3)
    assert (found.t, found.wilcoxon, found.difference.mean) == (1, 1, 0)
    assert paired([*VALUES, 0.3], [*OTHER, noisy]) == paired([*VALUES, 0.3], [*OTHER, 0.3])


def test_a_small_difference_is_still_one() -> None:
    a = [0.5, 0.6, 0.7]
    b = [value - 1e-6 * k for k, value in enumerate(a, start=1)]
    assert paired(a, b).t == pytest.approx(ttest_rel(a, b).pvalue)


def test_unequal_or_single_seeds_are_refused() -> None:
    with pytest.raises(HatrackError, match="got 5 and 4"):
        paired(VALUES, OTHER[:4])
    with pytest.raises(HatrackError, match="two or more"):
        paired([0.1], [0.2])
