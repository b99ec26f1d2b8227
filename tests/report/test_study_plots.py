"""What the lines over tasks show, which depends on how many seeds there are; the ticks of pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from hatrack.errors import HatrackError
from hatrack.report.by_task import numbers
from hatrack.report.picture import order_colours
from hatrack.report.read import Epoch, Result, Run, run_of
from hatrack.report.study_plots import (
    capacity_over_epochs,
    compression,
    each_task,
    forward_transfer,
    over_tasks,
    seeds,
    settings,
)
from hatrack.studies.findings import Finding
from hatrack.studies.page import page
from studies.made_up import TEXT, outcome

from .folder import edit_result, write_run


def made(accuracy: float = 0.9, tasks: int = 4, **metrics: Any) -> dict[str, Any]:
    """Return what the result.json of a run may hold, with the same accuracy everywhere."""
    return {"accuracy": [[accuracy] * (t + 1) for t in range(tasks)], "metrics": metrics}


def finding(accuracy: list[list[float]], **references: Any) -> Finding:
    return Finding(cast(Any, None), {"accuracy": accuracy, "metrics": {}}, references=references)


def line(svg: str, colour: str) -> NDArray[np.float64]:
    """Return the corners of the line drawn in a colour, y upwards; what leads to its name is drawn in it, too."""
    path = max(re.findall(rf'<path d="([^"]+)"[^>]*style="fill: none; stroke: {colour};', svg), key=len)
    return np.array(re.findall(r"[ML] (\S+) (\S+)", path), np.float64) * [1, -1]


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


def test_a_task_without_a_ratio_leaves_the_others() -> None:
    """Joint training is no better than guessing on task 1 at any time: ρ is then the mean over the other tasks."""
    accuracy = [[0.5], [0.5, 0.8], [0.5, 0.6, 0.9], [0.5, 0.7, 0.8, 0.9]]
    joint = [[0.5], [0.5, 0.9], [0.5, 0.9, 0.9], [0.5, 0.9, 0.9, 0.9]]
    drawn = over_tasks({"hat": [finding(accuracy, joint=joint, random=[0.5] * 4)]}, "rho")
    assert "joint training is no better than guessing there: task 1 after task 1–4." in drawn.caption
    assert drawn.caption.endswith("Without a value: hat (1 of 4, after task 1).")
    means = [0.3 / 0.4 - 1, (0.1 / 0.4 + 1) / 2 - 1, (0.2 / 0.4 + 0.3 / 0.4 + 1) / 3 - 1]
    heights = line(drawn.svg, to_hex(order_colours(1)[0]))[:, 1]
    assert np.diff(heights) / np.diff(means) == pytest.approx([np.ptp(heights) / np.ptp(means)] * 2, rel=1e-4)


def test_a_run_without_any_value_is_counted() -> None:
    drawn = over_tasks({"hat": [made(rho_each=[0.0, -0.1, -0.2, -0.3]), made()]}, "rho")
    assert drawn.caption.endswith("Without a value: hat (1 of 2 runs).")


@pytest.mark.parametrize(
    ("places", "written"), [([], ""), ([3], "3"), ([2, 1], "1, 2"), ([1, 2, 3, 5, 7, 8, 9, 10], "1–3, 5, 7–10")]
)
def test_numbers_in_a_row(places: list[int], written: str) -> None:
    assert numbers(places) == written


def test_forward_transfer_is_what_was_learned_less_what_is_learned_alone() -> None:
    accuracy, one = [[0.8], [0.1, 0.7], [0.1, 0.1, 0.9]], [0.7, 0.75, 0.4]
    drawn = forward_transfer({"hat": [finding(accuracy, one=one)], "ewc": [made()]}, on="digits")
    assert drawn.title == "Forward transfer to each task on digits"
    assert "Without a value: ewc" in drawn.caption
    heights = line(drawn.svg, to_hex(order_colours(1)[0]))[:, 1]
    gained = [0.1, -0.05, 0.5]
    assert np.diff(heights) / np.diff(gained) == pytest.approx([np.ptp(heights) / np.ptp(gained)] * 2, rel=1e-4)
    with pytest.raises(HatrackError, match="It is taken against runs of one"):
        forward_transfer({"hat": [made()]})


def test_forward_transfer_of_folders_takes_the_run_of_the_same_seed(tmp_path: Path) -> None:
    run, alone = write_run(tmp_path / "hat", 3), write_run(tmp_path / "one", 3, method="one")
    edit_result(run, accuracy=[[0.8], [0.1, 0.7], [0.1, 0.1, 0.9]])
    edit_result(alone, accuracy=[[0.7], [0.7, 0.75], [0.7, 0.75, 0.4]])
    heights = line(forward_transfer({"hat": [run]}, one=[alone]).svg, to_hex(order_colours(1)[0]))[:, 1]
    assert np.diff(heights)[1] / np.diff(heights)[0] == pytest.approx(0.55 / -0.15, rel=1e-3)
    edit_result(alone, spec={"method": "one", "benchmark": "split-digits", "net": "mlp", "seed": 1})
    with pytest.raises(HatrackError, match="It is taken against runs of one"):
        forward_transfer({"hat": [run]}, one=[alone])


def test_the_accuracy_on_each_task_when_learned_and_at_the_end() -> None:
    hat, other = [[0.8], [0.7, 0.9]], [[0.6], [0.5, 0.7]]
    drawn = each_task({"hat": [finding(hat), finding(other)], "sgd": [finding(hat)], "ewc": []}, on="digits")
    assert drawn.title == "Accuracy on each task on digits"
    assert drawn.caption.endswith("Without a value: ewc.")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn.svg)
    assert [text for text in texts if re.fullmatch(r"\d\d\.\d", text)] == [
        "70.0", "80.0", "80.0", "90.0", "60.0", "80.0", "70.0", "90.0",
    ]  # fmt: skip
    with pytest.raises(HatrackError, match="No run has learned two tasks or more"):
        each_task({"hat": [finding([[0.5]])]})


def test_tasks_have_names_where_all_runs_have_the_same(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, tasks=2, names=names) for name, names in (("a", "xy"), ("b", "xy"), ("c", "yx"))]
    assert ">1 · x<" in each_task({"hat": runs[:2]}).svg
    assert ">1 · x<" not in each_task({"hat": runs}).svg


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


def test_one_measure_after_several_tasks_over_a_setting() -> None:
    runs = {(s,): [finding([[0.9], [s, 0.9], [s * s, 0.9, 0.9]])] for s in (0.5, 0.6, 0.9)}
    drawn = settings(runs, ["share"], ["acc1@2", "acc1@3"], of="masks")
    assert (drawn.label, drawn.title) == ("acc1@2, acc1@3 of masks", "Accuracy on task 1 of masks")
    assert {">after task 2<", ">after task 3<", ">share<"} <= set(re.findall(r">[^<>]+<", drawn.svg))
    second, third = (line(drawn.svg, to_hex(colour)) for colour in order_colours(2))
    scale = np.diff(second[:, 1])[0] / 0.1
    assert np.diff(second[:, 1]) == pytest.approx(np.array([0.1, 0.3]) * scale, rel=1e-3)
    assert np.diff(third[:, 1]) == pytest.approx(np.array([0.11, 0.45]) * scale, rel=1e-3)


def test_settings_without_a_value_are_named() -> None:
    runs: dict[tuple[float, ...], list[Any]] = {(c,): [made()] for c in (0.5, 1.0)} | {(2.0,): []}
    assert settings(runs, ["c"], "acc@4").caption.endswith("Without a value: c = 2.")
    grid: dict[tuple[float, ...], list[Any]] = {(c, s): [made()] for c in (0.5, 1.0) for s in (1.0, 2.0)}
    drawn = settings(grid | {(1.0, 2.0): []}, ["c", "s"], "acc@4")
    assert drawn.caption.endswith("Without a value: c = 1, s = 2.")
    assert drawn.svg.count(">0.900<") == 3


def test_capacity_without_an_epoch_is_named() -> None:
    epochs = [Epoch(task=0, epoch=1, capacity=0.5)]
    drawn = capacity_over_epochs({"hat": recorded(epochs), "pmask": recorded([])})
    assert drawn.caption.endswith("Without an epoch: pmask.")


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
