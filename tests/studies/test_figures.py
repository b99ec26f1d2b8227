"""The band around a paper's figure."""

from __future__ import annotations

import pytest

from hatrack.studies.figures import figure


@pytest.mark.parametrize(
    ("given", "within", "ours", "verdict"),
    [
        (0.9, 0.02, 0.92, "within"),
        (0.9, 0.02, 0.9201, "above"),
        (0.9, 0.02, 0.8799, "below"),
        ([0.9, 0.03], 0.02, 0.96, "within"),
        ([0.9, 0.03], 0.02, 0.961, "above"),
        ([0.66, 0.0], 0.01, 0.65, "within"),
        ([-0.06, 0.01], 0.0, -0.081, "below"),
        ({"mean": 0.0047, "within": 0.0005}, 0.05, 0.0, "below"),
        ({"mean": 0.9, "std": 0.03}, 0.02, 0.96, "within"),
        ({"mean": 0.9, "within": "order"}, 0.02, 0.5, ""),
        (0.9, None, 0.5, ""),
    ],
)
def test_verdicts(given: object, within: float | None, ours: float, verdict: str) -> None:
    assert figure(given, within, "here").verdict(ours) == verdict


def test_as_the_paper_prints_it() -> None:
    assert str(figure([0.66, 0.01], 0, "")) == "0.66 ± 0.01"
    assert str(figure(-0.09, 0, "")) == "-0.09"
    assert str(figure(65_198_080, 0, "")) == "65,198,080"
