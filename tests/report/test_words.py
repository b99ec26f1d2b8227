"""Numbers in words."""

from __future__ import annotations

import math

import pytest

from hatrack.measure import MEASURES
from hatrack.report import words


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.98765, "98.8 %"),
        (1.0, "100 %"),
        (0.9999, "100.0 %"),
        (0.0, "0 %"),
        (-0.0, "0 %"),
        (0.00001, "0.0 %"),
        (-0.25, "−25.0 %"),
        (None, "–"),
        (math.nan, "–"),
        ("high", "–"),
    ],
)
def test_percent(value: object, said: str) -> None:
    assert words.percent(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (14.23, "14.2 s"),
        (119.9, "119.9 s"),
        (192, "3 min 12 s"),
        (7199.4, "119 min 59 s"),
        (7500, "2 h 05 min"),
        (None, "–"),
    ],
)
def test_duration(seconds: float | None, said: str) -> None:
    assert words.duration(seconds) == said


def test_whole_and_counted() -> None:
    assert words.whole(7_100_000) == "7\u2009100\u2009000"
    assert words.whole(None) == "–"
    assert words.counted(1, "task") == "1 task"
    assert words.counted(0, "task") == "0 tasks"


@pytest.mark.parametrize(("p", "said"), [(0.25, "0.250"), (0.0004, "< 0.001"), (None, "–")])
def test_p_values(p: float | None, said: str) -> None:
    assert words.chance(p) == said


@pytest.mark.parametrize(
    ("kept", "said"),
    [(None, "–"), (0, "0 B"), (300, "300 B"), (20 * 2**10, "20 KiB"), (2**21, "2 MiB"), (2**30, "1.0 GiB")],
)
def test_sizes(kept: int | None, said: str) -> None:
    assert words.size(kept) == said


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acc", 0.5, "0.5000"),
        ("seconds", 192, "3 min 12 s"),
        ("minutes", 3.25, "3.2 min"),
        ("kept", 300, "300 B"),
        ("parameters", 7e6, "7,000,000"),
    ],
)
def test_a_measure_is_written_in_its_unit(name: str, value: float, said: str) -> None:
    assert words.number(value, MEASURES[name]) == said
    assert words.number(None, MEASURES[name]) == "–"
