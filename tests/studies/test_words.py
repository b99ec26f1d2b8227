"""What a study says in words."""

from __future__ import annotations

from collections import Counter

import pytest

from hatrack.studies.words import agreement


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, ""),
        ({"within": 1}, "1 of 1 figure within the paper’s band."),
        ({"above": 2, "within": 1, "below": 3}, "1 of 6 figures within the paper’s band, 2 above, 3 below it."),
        ({"below": 1}, "0 of 1 figure within the paper’s band, 1 below it."),
    ],
)
def test_how_our_figures_lie_to_the_papers(found: dict[str, int], said: str) -> None:
    assert agreement(Counter(found)) == said
