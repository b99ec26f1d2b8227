"""What the lines over tasks show, which depends on how many seeds there are; the ticks of pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex

from hatrack.errors import HatrackError
from hatrack.report.picture import order_colours
from hatrack.report.read import Epoch, Result, Run, run_of
from hatrack.report.study_plots import capacity_over_epochs, compression, over_tasks, seeds, settings
from hatrack.studies.page import page
from studies.made_up import TEXT, outcome

from .folder import write_run


def made(accuracy: float = 0.9, tasks: int = 4, **metrics: Any) -> dict[str, Any]:
    """Return what the result.json of a run may hold, with the same accuracy everywhere."""
    return {"accuracy": [[accuracy] * (t + 1) for t in range(tasks)], "metrics": metrics}


def recorded(epochs: list[Epoch]) -> Run:
    spec = {"method": "hat", "benchmark": "b", "net": "n", "seed": 0}
    facts = {"tasks": [{"name": "a", "classes": 2}], "accuracy": [[0.5]], "metrics": {}}
    return run_of(Result.model_validate({"schema": 1, "hatrack": "0", "spec": spec, **facts}), epochs=epochs)


def drawn(count: int) -> str:
    return over_tasks({"hat": [made(0.9 + 0.01 * s) for s in range(count)]}).svg


def test_an_interval_is_shaded_from_three_seeds_on() -> None:
    assert "opacity: 0.15" in drawn(3)
    assert "opacity: 0.15" not in drawn(2)


def test_two_seeds_have_a_thin_line_each() -> None:
    assert drawn(2).count("stroke-opacity: 0.4") == 2
    assert "stroke-opacity: 0.4" not in drawn(3)


def test_a_method_has_one_colour_in_every_picture() -> None:
    hat, joint = made(0.5, rho_each=[-0.1] * 4), made(0.6)
    both = over_tasks({"joint": [joint], "hat": [hat]}, among=["joint", "hat"]).svg
    alone = over_tasks({"hat": [hat]}, "rho", among=["joint", "hat"]).svg
    colour = to_hex(order_colours(2)[1])
    assert colour in both
    assert colour in alone
    assert to_hex(order_colours(2)[0]) not in alone


def test_what_has_no_value_leaves_what_has_and_is_named() -> None:
    """A ratio is unknown after one task of one seed, and one method has none."""
    whole, gap = (made(rho_each=each) for each in ([0.0, -0.1, -0.2, -0.3], [0.0, None, -0.1, -0.1]))
    drawn = over_tasks({"hat": [whole, gap], "ewc": [gap], "sgd": [made()]}, "rho", on="digits")
    assert drawn.caption.endswith(
        "Without a value: sgd (none after two tasks or more); hat (1 of 8, after task 2); ewc (1 of 4, after task 2)."
    )
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn.svg)
    assert {"hat", "ewc"} <= set(texts)
    assert "sgd" not in texts
    with pytest.raises(HatrackError, match=r"No run has a value of forgetting ratio ρ .* runs of joint, random"):
        over_tasks({"sgd": [made()]}, "rho")


def test_a_line_that_ends_early_has_its_name_all_the_same() -> None:
    svg = over_tasks({"hat": [made(rho_each=[0.0, -0.1, -0.2, None])]}, "rho").svg
    assert ">hat<" in svg


def test_runs_are_folders_too(tmp_path: Path) -> None:
    runs = {"hat": [write_run(tmp_path / "a"), str(write_run(tmp_path / "b"))]}
    assert ">hat<" in over_tasks(runs).svg
    assert ">hat<" in seeds(runs, "forgetting").svg


def test_a_measure_over_settings() -> None:
    line = settings({(c,): [made(c)] for c in (0.5, 1.0)}, ["c"], "acc@4", on="digits")
    assert (line.label, line.title) == ("acc@4 on digits", "Average accuracy after task 4 on digits")
    assert ">c<" in line.svg
    grid = settings({(c, s): [made(c), made(1.0)] for c in (0.52, 0.7) for s in (1.0, 2.0)}, ["c", "s_max"], "acc@4")
    assert grid.svg.count(">0.760<") == 2
    with pytest.raises(HatrackError, match="two values or more"):
        settings({(1.0,): [made()]}, ["c"], "acc@4")


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
    svg = compression({"cifar100": recorded(epochs)}).svg
    labels = re.findall(r">([\d.]+ %)<", svg)
    across = [label for label in labels if label in ("0 %", "20 %", "40 %", "60 %", "80 %", "100 %")]
    beside = [label for label in labels if label not in across]
    assert len(beside) > 2
    assert len(set(beside)) == len(beside)


def test_no_tick_of_an_accuracy_is_above_one() -> None:
    epochs = [Epoch(task=0, epoch=e + 1, valid_accuracy=1.0, capacity=0.5) for e in range(2)]
    percents = re.findall(r">([\d.]+) %<", compression({"digits": recorded(epochs)}).svg)
    assert max(map(float, percents)) == 100
    runs = {"hat": [made(1.0, acc=1.0, rho=1.0), made(1.0, acc=1.0, rho=1.0)]}
    for svg in (over_tasks(runs).svg, seeds(runs).svg):
        assert max(map(float, re.findall(r">(\d\.\d+)<", svg))) == 1
    assert re.search(r">1\.010?<", seeds(runs, "rho").svg)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_epochs_are_whole_numbers(count: int) -> None:
    epochs = [Epoch(task=0, epoch=e + 1, capacity=0.5) for e in range(count)]
    svg = capacity_over_epochs({"hat": recorded(epochs)}).svg
    assert set(re.findall(r">([\d.]+)<", svg)) == {str(e + 1) for e in range(count)}
