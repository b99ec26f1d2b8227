"""What the lines over tasks show, which depends on how many seeds there are; the ticks of pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from hatrack.report.figure import order_colours
from hatrack.report.read import Epoch
from hatrack.studies.page import page
from hatrack.studies.plots import capacity_over_epochs, compression, over_tasks, seed_points
from hatrack.studies.table import Cell
from studies.made_up import TEXT, outcome


def drawn(seeds: int) -> str:
    return over_tasks("accuracy", {"hat": [[0.9 + 0.01 * s for s in range(seeds)]] * 4}, among=["hat"], zero=False)


def test_an_interval_is_shaded_from_three_seeds_on() -> None:
    assert "opacity: 0.15" in drawn(3)
    assert "opacity: 0.15" not in drawn(2)


def test_two_seeds_have_a_thin_line_each() -> None:
    assert drawn(2).count("stroke-opacity: 0.4") == 2
    assert "stroke-opacity: 0.4" not in drawn(3)


def test_a_method_has_one_colour_in_every_picture() -> None:
    line = [[0.5], [0.6]]
    both = over_tasks("accuracy", {"joint": line, "hat": line}, among=["joint", "hat"], zero=False)
    alone = over_tasks("ratio", {"hat": line}, among=["joint", "hat"], zero=True)
    colour = to_hex(order_colours(2)[1])
    assert colour in both
    assert colour in alone
    assert to_hex(order_colours(2)[0]) not in alone


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


def test_no_two_ticks_of_the_compression_picture_read_alike() -> None:
    """Accuracies of 2 to 4 %, as a hundred classes give at first."""
    epochs = [Epoch(task=0, epoch=e + 1, valid_accuracy=0.02 + 0.002 * e, capacity=0.5) for e in range(11)]
    svg = compression("compression", {"cifar100": epochs}, {})
    labels = re.findall(r">([\d.]+ %)<", svg)
    across = [label for label in labels if label in ("0 %", "20 %", "40 %", "60 %", "80 %", "100 %")]
    beside = [label for label in labels if label not in across]
    assert len(beside) > 2
    assert len(set(beside)) == len(beside)


def test_no_tick_of_an_accuracy_is_above_one() -> None:
    epochs = [Epoch(task=0, epoch=e + 1, valid_accuracy=1.0, capacity=0.5) for e in range(2)]
    percents = re.findall(r">([\d.]+) %<", compression("compression", {"digits": epochs}, {}))
    assert max(map(float, percents)) == 100
    cells = {"hat": Cell({0: 1.0, 1: 1.0}, None)}
    for svg in (
        over_tasks("acc", {"hat": [[1.0, 1.0]] * 4}, among=["hat"], zero=False),
        seed_points("acc", cells, bounded=True),
    ):
        assert max(map(float, re.findall(r">(\d\.\d+)<", svg))) == 1
    assert re.search(r">1\.010?<", seed_points("seconds", cells, bounded=False))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_epochs_are_whole_numbers(count: int) -> None:
    epochs = [Epoch(task=0, epoch=e + 1, capacity=0.5) for e in range(count)]
    svg = capacity_over_epochs("capacity", {"hat": epochs})
    assert set(re.findall(r">([\d.]+)<", svg)) == {str(e + 1) for e in range(count)}
