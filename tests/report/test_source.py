"""What a picture can be drawn of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import hatrack
from hatrack import plot
from hatrack.errors import HatrackError
from hatrack.methods import METHODS
from hatrack.nets import build
from hatrack.report.source import as_run

from .folder import write_run


def test_a_folder_and_its_result_give_the_same_picture(run_folder: Path) -> None:
    result = json.loads((run_folder / "result.json").read_text())
    assert plot.matrix(str(run_folder)).svg == plot.matrix(run_folder).svg == plot.matrix(result).svg
    assert plot.reuse(result).svg == plot.reuse(as_run(run_folder)).svg


@pytest.mark.parametrize(("draw", "file"), [(plot.masks, "masks.safetensors"), (plot.training, "metrics.jsonl")])
def test_what_no_result_holds_is_in_the_folder(run_folder: Path, draw: Any, file: str) -> None:
    result = json.loads((run_folder / "result.json").read_text())
    with pytest.raises(HatrackError, match=f"a result does not hold what is in {file}: give the run's folder"):
        draw(result)
    assert draw(run_folder).svg.startswith("<svg")


@dataclass
class Learner:
    """Has what a picture of accuracies needs."""

    rows: list[list[float | None]]

    def matrix(self) -> list[list[float | None]]:
        return self.rows


def test_whatever_has_a_matrix_will_do() -> None:
    run = as_run(Learner([[0.5], [None, 0.75]]))
    assert run.names == ["task 1", "task 2"]
    assert np.array_equal(run.accuracy, [[0.5, np.nan], [np.nan, 0.75]], equal_nan=True)
    assert (run.masks, run.reuse, run.result.capacity) == (None, None, None)
    with pytest.raises(HatrackError, match="learned no task yet"):
        plot.matrix(Learner([]))


def test_a_learner_shows_its_tasks_its_capacity_and_its_masks() -> None:
    learner = hatrack.Learner(build("mlp", (4,), widths=(6,)), METHODS["hat"](), epochs=1)
    for name in ("first", "second"):
        learner.learn(hatrack.Task(name, (torch.randn(20, 4), torch.arange(20) % 2)))
    learner.matrix = lambda: [[0.5], [0.5, 0.75]]  # type: ignore[attr-defined, method-assign, unused-ignore]
    run = as_run(learner)  # type: ignore[arg-type, unused-ignore]
    assert run.names == ["first", "second"]
    assert [task.classes for task in run.result.tasks] == [2, 2]
    assert run.masks is not None
    assert [gates.shape for gates in run.masks.values()] == [(2, 6)]
    assert run.reuse is not None
    for draw in (plot.matrix, plot.accuracy, plot.capacity, plot.reuse, plot.masks):
        assert draw(run).svg.startswith("<svg")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "a run's folder, its result or a learner, got 3"),
        ({}, r"the result is broken \(schema: Field required\); give what result.json holds"),
        ("nowhere", "nowhere is not a run folder"),
    ],
)
def test_anything_else_is_refused_in_one_line(given: Any, says: str) -> None:
    with pytest.raises(HatrackError, match=says):
        plot.matrix(given)


def test_a_result_that_is_not_whole_is_refused(run_folder: Path) -> None:
    result = json.loads((run_folder / "result.json").read_text())
    with pytest.raises(HatrackError, match=r"the result is broken .accuracy: row t must hold tasks 1..t"):
        plot.matrix({**result, "accuracy": [[0.5]]})


def test_the_history_of_a_learner_is_its_training() -> None:
    epochs = [SimpleNamespace(task=0, epoch=e, train_loss=1 / e, valid_loss=0.5, valid_accuracy=0.75) for e in (1, 2)]
    learner = Learner([[0.5]])
    learner.history = [SimpleNamespace(name="a", epochs=epochs)]  # type: ignore[attr-defined]
    assert [epoch.train_loss for epoch in as_run(learner).epochs] == [1.0, 0.5]
    assert plot.training(as_run(learner)).svg.startswith("<svg")


def test_every_public_plot_is_there(tmp_path: Path) -> None:
    assert set(plot.__all__) <= set(dir(hatrack.plot))
    runs = {"hat": [write_run(tmp_path / name, tasks=2) for name in "ab"]}
    assert isinstance(plot.seeds(runs), plot.Picture)
