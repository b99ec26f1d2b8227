from __future__ import annotations

import pytest

from hatrack.show.words import count, duration, percent


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (754, "12:34"), (3599.7, "1:00:00"), (11_220, "3:07:00")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_percent_and_count() -> None:
    assert percent(0.1234) == "12.3 %"
    assert percent(1) == "100.0 %"
    assert count(1, "epoch") == "1 epoch"
    assert count(1234, "epoch") == "1,234 epochs"
