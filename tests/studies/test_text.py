"""What a study says on a terminal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hatrack.studies.execute import Outcome
from hatrack.studies.file import parse
from hatrack.studies.table import agreement
from hatrack.studies.text import summary


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


def test_runs_that_failed_for_one_reason_are_named_together() -> None:
    study = parse("benchmarks = ['split-digits']\nmethods = ['hat']", "name")
    reasons = {Path("a"): "no data", Path("b"): "no data", Path("c"): "too hot", Path("d"): "no data"}
    text = summary(Outcome(study, [], reasons), Path("out"))
    assert "\n  a and 2 more: no data\n  c: too hot\n" in text


def test_runs_that_diverged_are_named() -> None:
    study = parse("benchmarks = ['split-digits']\nmethods = ['hat']", "name")
    lost = {Path("own/a"): "1 of 1 epoch", Path("references/b"): "3 of 40 epochs"}
    text = summary(Outcome(study, [], {}, lost), Path("out"))
    assert "\n  a: in 1 of 1 epoch\n  b: in 3 of 40 epochs\n" in text
    assert "iverged" not in summary(Outcome(study, [], {}), Path("out"))
