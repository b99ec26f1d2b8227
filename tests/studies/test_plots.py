"""What the lines over tasks show, which depends on how many seeds there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.studies.page import page
from hatrack.studies.plots import over_tasks
from studies.made_up import TEXT, outcome


def drawn(seeds: int) -> str:
    return over_tasks("accuracy", {"hat": [[0.9 + 0.01 * s for s in range(seeds)]] * 4}, zero=False)


def test_an_interval_is_shaded_from_three_seeds_on() -> None:
    assert "opacity: 0.15" in drawn(3)
    assert "opacity: 0.15" not in drawn(2)


def test_two_seeds_have_a_thin_line_each() -> None:
    assert drawn(2).count("stroke-opacity: 0.4") == 2
    assert "stroke-opacity: 0.4" not in drawn(3)


@pytest.mark.parametrize(
    ("seeds", "caption"),
    [
        ("[0]", "One seed."),
        ("[0, 1]", "Mean over seeds; thin: each seed."),
        ("[0, 1, 2]", "Mean over seeds; shaded: 95 % interval."),
    ],
)
def test_the_caption_says_which(tmp_path: Path, seeds: str, caption: str) -> None:
    text = TEXT.replace("seeds = [0, 1, 2]", f"seeds = {seeds}")
    assert caption in page(outcome(tmp_path, text))


def test_parameters_that_differ_between_seeds_are_shown_from_to(tmp_path: Path) -> None:
    made = outcome(tmp_path)
    assert " to " not in page(made).split("Parameters</th>")[1].split("</table>")[0]
    for finding in made.findings:
        assert finding.result is not None
        finding.result["parameters"] = 100 + finding.run.spec.seed
    assert ">100 to 102<" in page(made)


def test_the_caption_where_a_method_lacks_a_seed(tmp_path: Path) -> None:
    made = outcome(tmp_path, failed=(("ewc", 1),))
    assert "Mean over seeds; shaded: 95 % interval; thin: each seed." in page(made)
