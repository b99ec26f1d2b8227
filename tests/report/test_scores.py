"""Pictures and pages of runs whose tasks are scored by other things than accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hatrack import plot
from hatrack.errors import HatrackError
from hatrack.report.page import page
from hatrack.report.plots import graded
from hatrack.report.read import Result, Run, run_of

FIGURES = [[0.5], [-300.0, 0.25]]
KINDS = {
    "R²": {"target": "regression", "score": "R²", "larger_is_better": True, "guess": 0.0},
    "MAE": {"target": "regression", "score": "MAE", "larger_is_better": False, "guess": None},
    "accuracy": {"target": "classification", "score": "accuracy", "larger_is_better": True, "guess": 0.5},
}


def run(scores: list[list[float]], *kinds: str, **more: Any) -> Run:
    tasks = [{"name": f"task {i}", "classes": 2} | KINDS[kind] for i, kind in enumerate(kinds)]
    spec = {"method": "sgd", "benchmark": "own", "net": "mlp", "seed": 0}
    known = {"schema": 1, "hatrack": "0", "spec": spec, "tasks": tasks, "accuracy": scores, "metrics": {}} | more
    return run_of(Result.model_validate(known))


def test_figures_far_below_guessing_are_drawn_pale_and_written_as_they_are() -> None:
    made = run(FIGURES, "R²", "R²")
    assert graded(made) == pytest.approx(np.array([[0.5, np.nan], [0.0, 0.25]]), nan_ok=True)
    picture = plot.matrix(made)
    assert picture.title == "R² matrix"
    for text in ("0.500", "−300", "0.250", "guessing", "R² on task<"):
        assert text in picture.svg
    assert "%" not in picture.svg
    assert "−300" in plot.accuracy(made).svg
    assert plot.accuracy(made).title == "Each task over the sequence"


def test_where_smaller_is_better_the_lowest_is_the_darkest() -> None:
    made = run([[4.0], [10.0, 2.0], [6.0, 2.0, 1.0]], "MAE", "MAE", "MAE")
    grades = graded(made)
    assert grades[:, 0].tolist() == pytest.approx([1.0, 0.0, 2 / 3])
    assert grades[2, 1] == grades[2, 2] == 1.0
    assert plot.matrix(made).svg
    assert plot.accuracy(made).svg


def test_tasks_of_several_units_share_a_matrix_but_no_axis() -> None:
    made = run([[0.9], [0.9, 12.5]], "accuracy", "MAE")
    assert "0.900" in plot.matrix(made).svg
    assert "12.5" in plot.matrix(made).svg
    assert "Scored by accuracy, MAE." in plot.matrix(made).caption
    with pytest.raises(HatrackError, match="scored in several units, which share no axis"):
        plot.accuracy(made)
    text = page(made)
    assert "accuracy 90.0 %; MAE 12.5." in text
    assert "No task’s score changed" in text
    assert plot.accuracy(run([[0.9], [0.9, -0.5]], "accuracy", "R²")).svg  # none is above 1


def test_a_page_calls_the_score_by_its_name() -> None:
    text = page(run(FIGURES, "R²", "R²", metrics={"acc": -149.875, "forgetting": 300.5}))
    assert "the network’s R² is −149.9, averaged over the tasks." in text
    assert "The R² of 1 of the 2 tasks changed" in text
    assert "mean loss of R² on old tasks" in text
    shown = text.split("<h3>Measures</h3>")[0].split("</style>")[1]
    assert "ccuracy" not in shown.replace("#accuracy", "").replace('id="accuracy"', "")


def test_what_version_0_1_wrote_is_read_as_classes() -> None:
    old = {"schema": 1, "hatrack": "0.1.0", "spec": {"method": "sgd", "benchmark": "b", "net": "mlp", "seed": 0}}
    made = run_of(
        Result.model_validate(old | {"tasks": [{"name": "a", "classes": 4}], "accuracy": [[1.0]], "metrics": {}})
    )
    (task,) = made.result.tasks
    assert (task.target, task.score, task.larger_is_better, task.guess) == ("classification", "accuracy", True, 0.25)


def test_a_score_beyond_its_bounds_is_found() -> None:
    result = run([[1.5]], "accuracy").result.model_dump(by_alias=True)
    with pytest.raises(HatrackError, match=r"task 1 is scored by accuracy, which cannot be 1\.5"):
        plot.matrix(result)
    assert plot.matrix(run([[1.5]], "MAE").result.model_dump(by_alias=True)).svg
