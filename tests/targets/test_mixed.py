"""Tasks of different targets in one run: recorded, killed and resumed, compared, reported, studied."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hatrack import Epoch, HatrackError, Learner, Task, load, plot
from hatrack.cli import main
from hatrack.methods import METHODS
from hatrack.report.read import read
from targets import mixed

MAKE, NET = (f"{Path(__file__).with_name('mixed.py')}:{name}" for name in ("make", "net"))
SHORT = ["--net", NET, "--device", "cpu", "--epochs", "6", "--seed", "3", "--set", "batch_size=16"]


def run(folder: Path, method: str, *more: str) -> dict[str, Any]:
    assert command("run", "--method", method, "--benchmark", MAKE, *SHORT, "--out", str(folder), *more) == 0
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def command(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mixed")
    for method in ("joint", "random", "one", "sgd"):
        run(home / method, method)
    return home


def test_a_run_says_what_its_tasks_are_scored_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path / "run", "hat")
    told = [[task[key] for key in ("target", "score", "larger_is_better", "guess")] for task in result["tasks"]]
    labels = mixed.make(3)[2].train.labels
    assert labels is not None
    share = pytest.approx(float(labels.mean()))
    assert told == [
        ["classification", "accuracy", True, 0.5],
        ["regression", "R²", True, 0.0],
        ["multilabel", "average precision", True, share],
    ]
    assert result["verified"]["ok"]
    metrics = result["metrics"]
    assert [metrics[name] for name in ("acc", "bwt", "forgetting", "acc_weighted")] == [None] * 4
    why = "no mean over tasks that are scored by accuracy, R², average precision"
    assert metrics["undefined"]["acc"] == why
    shown = capsys.readouterr().out
    assert "Test score after learning each task" in shown
    assert "R²: sum" in shown
    assert why in shown
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Score matrix" in page
    assert why in page
    assert "R²" in page
    assert command("verify", str(tmp_path / "run")) == 0


def test_rho_stands_between_guessing_and_joint_training_task_by_task(runs: Path) -> None:
    against = [word for method in ("joint", "random", "one") for word in ("--against", str(runs / method))]
    assert command("report", str(runs / "sgd"), *against) == 0
    mine, joint, random = (json.loads((runs / m / "result.json").read_text()) for m in ("sgd", "joint", "random"))
    last, bound = np.array(mine["accuracy"][-1]), np.array(joint["accuracy"][-1])
    chance = np.array([row[-1] for row in random["accuracy"]])
    assert mine["metrics"]["rho"] == pytest.approx(float(((last - chance) / (bound - chance) - 1).mean()))
    assert mine["metrics"]["fwt"] is None
    assert plot.ratio(runs / "sgd").svg
    assert plot.matrix(runs / "sgd").svg
    assert plot.accuracy(runs / "sgd").svg  # none is above 1


def test_errors_have_the_signs_of_gains_turned_round(tmp_path: Path) -> None:
    found = {m: run(tmp_path / m, m, "--set", "errors=true") for m in ("sgd", "one")}
    mine = found["sgd"]
    (first,), (after, second) = mine["accuracy"]
    metrics = mine["metrics"]
    assert metrics["acc"] == pytest.approx((after + second) / 2)
    assert metrics["bwt"] == pytest.approx(first - after)
    assert metrics["forgetting"] == pytest.approx(after - first)
    assert command("report", str(tmp_path / "sgd"), "--against", str(tmp_path / "one")) == 0
    alone = [row[-1] for row in found["one"]["accuracy"]]
    fwt = json.loads((tmp_path / "sgd" / "result.json").read_text())["metrics"]["fwt"]
    assert fwt == pytest.approx(((alone[0] - first) + (alone[1] - second)) / 2)
    page = (tmp_path / "sgd" / "report.html").read_text()
    assert "Average MAE" in page
    assert "mean loss of MAE on old tasks" in page
    assert read(tmp_path / "sgd").scale.larger_is_better is False


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    made = mixed.make(0)
    for method in ("hat", "joint", "a-gem", "ewc"):
        whole, stopped = (learner(method) for _ in range(2))
        for task in made:
            whole.learn(task)
        folder = tmp_path / method
        stopped.learn(made[0])
        stopped.learn(made[1], on_epoch=partial(_save, stopped, folder))
        resumed = load(folder, mixed.net((6,)), device="cpu")
        assert resumed.finished == 1
        resumed.remember(made[0])
        for task in made[1:]:
            resumed.learn(task)
        x = made[0].train.first(30)
        for task in made:
            assert torch.equal(resumed.predict(x, task.name), whole.predict(x, task.name)), method
        assert resumed.matrix()[-1] == whole.matrix()[-1]


def _save(stopped: Learner, folder: Path, epoch: Epoch) -> None:
    if epoch.epoch == 2:
        stopped.save(folder)


def learner(method: str) -> Learner:
    torch.manual_seed(0)
    return Learner(mixed.net((6,)), METHODS[method](), epochs=3, batch_size=16, device="cpu")


def test_a_study_of_mixed_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.toml").write_text(
        f"""title = "mixed"
seeds = [0]
methods = ["hat", "sgd"]
benchmarks = ["{MAKE}"]
measures = ["rho", "acc", "acc2"]
[shared]
net = "{NET}"
epochs = 3
device = "cpu"
"""
    )
    assert command("study", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"), "--workers", "1") == 0
    shown = capsys.readouterr().out
    assert "average score" in (tmp_path / "out" / "report.html").read_text()
    table = (tmp_path / "out" / "table.csv").read_text()
    assert "rho" in table
    assert "hat" in shown
    runs = [line.split(",") for line in (tmp_path / "out" / "runs.csv").read_text().splitlines()]
    place = {name: runs[0].index(name) for name in ("rho", "acc", "acc2")}
    for row in runs[1:]:
        assert np.isfinite(float(row[place["rho"]]))
        assert row[place["acc"]] == ""
        assert float(row[place["acc2"]]) <= 1


def test_a_search_needs_one_score() -> None:
    from hatrack.runs.spec import chosen, resolve
    from hatrack.studies.tune import _require_possible

    base = resolve({"benchmark": chosen("benchmark", MAKE), "net": chosen("net", NET), "device": "cpu"}, [])
    with pytest.raises(HatrackError, match="are scored by accuracy, R², average precision: tune on tasks of one kind"):
        _require_possible(base)


def test_a_task_is_handed_in_again_as_what_it_was() -> None:
    made, given = learner("sgd"), mixed.make(0)
    made.learn(given[1])
    other = Task("sum", *((part.first(8), torch.zeros(8).long()) for part in (given[1].train,)), test=None, classes=2)
    with pytest.raises(HatrackError, match="task 'sum' was learned as regression with 1 outputs, got classification"):
        made.remember(other)
