"""Pictures are checked by what a reader would see: the pixels inside the SVG, and its text."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray
from PIL import Image

from hatrack.errors import HatrackError
from hatrack.report import picture as fig
from hatrack.report import plots
from hatrack.report.read import Epoch, Result, Run, run_of


def _cells(svg: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Return the colour in the middle of each cell of the SVG's first image, as RGBA in 0..1."""
    found = re.search(r'<image [^>]*?href="data:image/png;base64,\s*([^"]+)"', svg)
    assert found
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGBA")) / 255
    height, width = pixels.shape[0] / rows, pixels.shape[1] / columns
    down = ((np.arange(rows) + 0.5) * height).astype(int)
    across = ((np.arange(columns) + 0.5) * width).astype(int)
    return np.asarray(pixels[down][:, across])


def _texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def _run(count: int, classes: int = 2, epochs: list[Epoch] | None = None, **result: Any) -> Run:
    """Return a run of so many tasks, of which only what is given is known."""
    tasks = [{"name": f"task {chr(97 + i % 26)}", "classes": classes} for i in range(count)]
    spec = {"method": "hat", "benchmark": "b", "net": "n", "seed": 0}
    whole = {"accuracy": [[None] * (t + 1) for t in range(count)], "metrics": {}} | result
    known = Result.model_validate({"schema": 1, "hatrack": "0", "spec": spec, "tasks": tasks, **whole})
    return run_of(known, epochs=epochs or [])


def _accuracy(table: NDArray[np.float64], classes: int = 2) -> Run:
    rows = [[None if np.isnan(v) else float(v) for v in row[: t + 1]] for t, row in enumerate(table)]
    return _run(len(table), classes, accuracy=rows)


def _gates(gates: NDArray[np.float64]) -> Run:
    return replace(_run(len(gates)), masks={"fc1": gates})


def test_masks_are_coloured_by_new_reused_held_and_free() -> None:
    gates = np.array([[0, 1, 1, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 0, 0.4]])
    # By first use, and within a task the more used first: units 1, 2, 3, then those never used: 0, 4
    expected = [
        [fig.NEW, fig.NEW, fig.FREE, fig.FREE, fig.FREE],
        [fig.REUSED, fig.HELD, fig.NEW, fig.FREE, fig.FREE],
        [fig.REUSED, fig.HELD, fig.HELD, fig.FREE, fig.FREE],
    ]
    svg = plots.masks(_gates(gates), "fc1").svg
    wanted = [[to_rgb(colour) for colour in row] for row in expected]
    np.testing.assert_allclose(_cells(svg, 3, 5)[..., :3], wanted, atol=1 / 255)
    texts = _texts(svg)
    assert texts[texts.index("new") + 1 :][:3] == ["2", "1", "0"]
    assert texts[texts.index("reused") + 1 :][:3] == ["0", "1", "1"]


def test_units_of_a_wide_site_share_columns() -> None:
    gates = np.zeros((100, 2500))
    gates[0, :1501] = 1  # 834 columns of 3 units each; the last unit shares its column with two free ones
    row = _cells(plots.masks(_gates(gates), "fc1").svg, 100, 834)[0, :, :3]
    new, free = np.array(to_rgb(fig.NEW)), np.array(to_rgb(fig.FREE))
    np.testing.assert_allclose(row[:500], np.tile(new, (500, 1)), atol=1 / 255)
    np.testing.assert_allclose(row[500], (new + 2 * free) / 3, atol=1 / 255)
    np.testing.assert_allclose(row[501:], np.tile(free, (333, 1)), atol=1 / 255)


def _staircase(count: int, low: float, high: float) -> NDArray[np.float64]:
    table = np.linspace(low, high, count * count).reshape(count, count)
    table[np.triu_indices(count, 1)] = np.nan
    return table


def test_matrix_is_darker_where_better_and_clear_where_nothing_was_measured() -> None:
    svg = plots.matrix(_accuracy(_staircase(3, 0.5, 1.0))).svg
    cells = _cells(svg, 3, 3)
    assert (cells[..., 3] == np.tril(np.ones((3, 3)))).all()
    brightness = cells[..., :3].sum(axis=-1)[np.tril_indices(3)]
    assert (np.diff(brightness) < 0).all()
    np.testing.assert_allclose(cells[0, 0], fig.SHARE(0.0), atol=1 / 255)
    np.testing.assert_allclose(cells[2, 2], fig.SHARE(1.0), atol=1 / 255)


def test_matrix_starts_at_chance_or_below_it_where_accuracy_is_lower() -> None:
    fair = plots.matrix(_accuracy(np.array([[0.55]]), classes=10)).svg
    np.testing.assert_allclose(_cells(fair, 1, 1)[0, 0], fig.SHARE(0.5), atol=2 / 255)
    low = plots.matrix(_accuracy(np.array([[0.2]]))).svg
    np.testing.assert_allclose(_cells(low, 1, 1)[0, 0], fig.SHARE(0.0), atol=1 / 255)


def test_what_guessing_always_gets_right_is_dark() -> None:
    svg = plots.matrix(_accuracy(np.array([[1.0]]), classes=1)).svg
    np.testing.assert_allclose(_cells(svg, 1, 1)[0, 0], fig.SHARE(1.0), atol=1 / 255)
    assert "110 %" not in _texts(svg)


@pytest.mark.parametrize(("count", "figures"), [(1, 1), (20, 210), (21, 0)])
def test_cells_hold_figures_up_to_twenty_tasks(count: int, figures: int) -> None:
    svg = plots.matrix(_accuracy(_staircase(count, 0.711, 0.987))).svg
    assert sum(bool(re.fullmatch(r"\d\d\.\d", text)) for text in _texts(svg)) == figures


def test_matrix_says_100_only_of_what_is_exact() -> None:
    texts = _texts(plots.matrix(_accuracy(np.array([[1.0, np.nan], [0.9999, 0.5]]))).svg)
    assert texts.count("100") == 1
    assert texts.count("100.0") == 1


def test_reuse_fills_the_upper_half() -> None:
    table = np.full((3, 3), np.nan)
    table[np.triu_indices(3, 1)] = 0.0, 0.5, 1.0
    cells = _cells(plots.reuse(replace(_run(3), reuse=table)).svg, 3, 3)
    assert (cells[..., 3] == np.triu(np.ones((3, 3)), 1)).all()
    np.testing.assert_allclose(cells[0, 2], fig.SHARE(0.5), atol=2 / 255)


def test_lines_are_named_up_to_twenty_and_counted_above() -> None:
    few = _texts(plots.accuracy(_accuracy(_staircase(20, 0.5, 1.0))).svg)
    assert {"1 · task a", "20 · task t", "average"} <= set(few)
    many = _texts(plots.accuracy(_accuracy(_staircase(21, 0.5, 1.0))).svg)
    assert "task, first to last" in many
    assert "1 · task a" not in many


def _points(svg: str, colour: str) -> NDArray[np.float64]:
    """Return the corners of the first line drawn in `colour`."""
    found = re.search(rf'<path d="([^"]+)"[^>]*style="fill: none; [^"]*stroke: {colour};', svg)
    assert found
    return np.array(re.findall(r"[ML] (\S+) (\S+)", found[1]), np.float64)


def test_average_counts_only_what_was_measured() -> None:
    accuracy = np.array([[0.8, np.nan, np.nan], [0.8, np.nan, np.nan], [0.6, np.nan, 1.0]])
    heights = _points(plots.accuracy(_accuracy(accuracy)).svg, fig.INK)[:, 1]
    np.testing.assert_allclose(heights, heights[0], atol=1e-6)  # 0.8, 0.8 and (0.6 + 1.0)/2


def test_capacity_is_drawn_to_scale() -> None:
    svg = plots.capacity(_run(3, capacity=[{"total": c, "layers": {"fc1": c}} for c in (0.2, 0.4, 1.0)])).svg
    x, y = _points(svg, fig.INK).T
    assert np.diff(x)[0] == pytest.approx(np.diff(x)[1])
    assert (y[0] - y[2]) == pytest.approx(4 * (y[0] - y[1]), rel=1e-4)
    assert {"fc1", "all layers", "100 %", "0 %"} <= set(_texts(svg))


def _epochs(counts: list[int], **fields: float | None) -> list[Epoch]:
    return [Epoch(task=t, epoch=e + 1, **fields) for t, n in enumerate(counts) for e in range(n)]


def test_training_has_a_panel_for_each_quantity_that_was_recorded() -> None:
    texts = _texts(plots.training(_run(2, epochs=_epochs([3, 4], train_loss=0.5, lr=0.05))).svg)
    assert "loss" in texts
    assert "rate" in texts
    assert "accuracy" not in texts
    assert "0.05" in texts
    assert {"task a", "task b"} <= set(texts)
    assert "validation" not in texts


@pytest.mark.parametrize("epochs", [[], _epochs([3])], ids=["no epoch", "no value"])
def test_training_without_any_value_is_no_picture(epochs: list[Epoch]) -> None:
    with pytest.raises(HatrackError, match="hat recorded no epoch, so there are no training curves"):
        plots.training(_run(1, epochs=epochs))


@pytest.mark.parametrize(
    ("plot", "count", "says"),
    [
        (plots.matrix, 2, "No task of this run has test samples"),
        (plots.accuracy, 2, "No task of this run has test samples"),
        (plots.capacity, 2, "hat sets no weights aside for a task"),
        (plots.reuse, 2, "hat does not say which weights a task uses"),
        (plots.masks, 2, "hat has no unit masks"),
        (plots.weights, 2, "hat has no masks on single weights"),
        (plots.ratio, 2, "needs runs of joint and random: hatrack report RUN --against RUN"),
    ],
)
def test_what_cannot_be_drawn_says_why(plot: Any, count: int, says: str) -> None:
    with pytest.raises(HatrackError, match=says):
        plot(_run(count))


def test_a_ratio_that_is_unknown_after_a_task_leaves_the_others() -> None:
    drawn = plots.ratio(_run(4, metrics={"rho_each": [0.0, None, -0.1, -0.2]}))
    assert "No value after task 2: joint training is no better than guessing on a task." in drawn.caption
    [path] = re.findall(
        rf'<path d="([^"]+)"[^>]*style="fill: none; stroke: {to_hex(fig.order_colours(1)[0])};', drawn.svg
    )
    assert (path.count("M"), path.count("L")) == (2, 1)  # a point, a gap and a line
    with pytest.raises(HatrackError, match="no value after any task"):
        plots.ratio(_run(2, metrics={"rho_each": [None, None]}))


def test_masks_of_all_sites_or_of_one() -> None:
    run = replace(_run(2), masks={"fc1": np.eye(2, 5), "fc2": np.eye(2, 3)})
    whole, one = plots.masks(run), plots.masks(run, "fc2")
    assert {"fc1", "fc2"} <= set(_texts(whole.svg))
    assert (whole.about, one.about) == ("8 units, 4 used by any task", "3 units, 2 used by any task")
    assert whole.height == 2 * one.height
    with pytest.raises(HatrackError, match="unknown site 'fc3'"):
        plots.masks(run, "fc3")


def test_training_breaks_the_line_between_tasks_and_numbers_crowded_ones() -> None:
    svg = plots.training(_run(30, epochs=_epochs([2] * 30, valid_accuracy=0.9))).svg
    assert len(re.findall(rf"stroke: {fig.REUSED};", svg)) == 30
    texts = _texts(svg)
    assert "task a" not in texts
    assert {"1", "17", "30"} <= set(texts)


def test_training_marks_no_accuracy_above_all() -> None:
    texts = _texts(plots.training(_run(1, epochs=_epochs([5], valid_accuracy=1.0))).svg)
    percents = [float(text.removesuffix(" %")) for text in texts if text.endswith(" %")]
    assert max(percents) == 100


def _weights(fields: NDArray[np.float64], tasks: int) -> Run:
    return replace(_run(tasks), weights={"fc1.weight": fields, "fc2.weight": fields[:, :1]})


def test_weights_are_dark_where_a_task_uses_them() -> None:
    fields = np.array([[[1, 0, 0.5], [0, 0, 1]], [[0, 0, 0], [1, 1, 1]]])
    drawn = plots.weights(_weights(fields, 2), "fc1.weight")
    np.testing.assert_allclose(_cells(drawn.svg, 2, 3), fig.SHARE(fields[0]), atol=1 / 255)
    assert drawn.svg.count("<image") == 2
    assert {"1 · task a", "2 · task b"} <= set(_texts(drawn.svg))
    whole = plots.weights(_weights(fields, 2))
    assert whole.svg.count("<image") == 4
    assert {"fc1.weight", "fc2.weight"} <= set(_texts(whole.svg))
    with pytest.raises(HatrackError, match="unknown parameter 'fc3'"):
        plots.weights(_weights(fields, 2), "fc3")


def test_weights_of_all_tasks_together_are_said_to_be() -> None:
    drawn = plots.weights(_weights(np.ones((1, 2, 3)), 3), "fc1.weight")
    assert drawn.caption.endswith("The method keeps what all tasks hold back together.")
    assert _texts(drawn.svg) == ["all tasks"]


def test_of_many_tasks_the_first_and_the_last_are_drawn() -> None:
    drawn = plots.weights(_weights(np.ones((26, 1, 2)), 26), "fc1.weight")
    assert drawn.caption.endswith("The first and the last 5 of 26 tasks.")
    shown = _texts(drawn.svg)
    assert len(shown) == 10
    assert {"5 · task e", "22 · task v"} <= set(shown)
    assert "6 · task f" not in shown


def _spread(counts: list[int], zeros: int = 0, start: float = -2.0) -> dict[str, Any]:
    return {"start": start, "step": 0.25, "counts": counts, "zeros": zeros}


def test_histograms_are_drawn_to_scale_a_panel_a_layer() -> None:
    tasks = [{"fc1": _spread([1, 2, 0, 1], 4), "fc2": _spread([4], start=1.0)}, {"fc1": _spread([2], 2)}]
    drawn = plots.significance(_run(2, histograms=tasks))
    assert drawn.caption.endswith("after the last task: fc1 50.0 %.")
    texts = _texts(drawn.svg)
    assert {"fc1", "fc2", "1 · task a", "2 · task b", "1e−2"} <= set(texts)
    x, y = _points(drawn.svg, to_hex(fig.order_colours(2)[0])).T
    heights = sorted(set(np.round(y[0] - y, 3)))  # 0, 1/8 and 2/8 of the entries
    assert heights[1] * 2 == pytest.approx(heights[2], rel=1e-3)
    assert len(heights) == 3
    assert len(set(np.round(x, 3))) == 5  # the edges of four steps


def test_histograms_of_many_tasks_are_counted_and_none_says_why() -> None:
    drawn = plots.significance(_run(6, histograms=[None, *[{"fc1": _spread([1])}] * 5]))
    assert "2 · task b" in _texts(drawn.svg)
    many = _texts(plots.significance(_run(6, histograms=[{"fc1": _spread([1])}] * 6)).svg)
    assert "task, first to last" in many
    assert "2 · task b" not in many
    with pytest.raises(HatrackError, match="hat recorded no significance"):
        plots.significance(_run(2))


def test_training_survives_a_loss_that_blew_up() -> None:
    epochs = [*_epochs([1], train_loss=0.5), Epoch(task=1, epoch=1, train_loss=float("inf"))]
    assert "loss" in _texts(plots.training(_run(2, epochs=epochs)).svg)


def test_found_draws_the_share_that_each_task_is_taken_for() -> None:
    free = {"score": "mahalanobis", "found": [[0.9, 0.1], [0.25, 0.75]], "accuracy": [0.9, 0.7], "none": [0.0, 0.1]}
    texts = _texts(plots.found(_run(2, free=free)).svg)
    assert {"90.0", "10.0", "25.0", "75.0"} <= set(texts)
    with pytest.raises(HatrackError, match="was not asked in this run"):
        plots.found(_run(2))
