"""A learner that no run has made: its report, and the report and the verdict on its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import hatrack
from hatrack import HAT, HatrackError, Learner, Task
from hatrack.cli import main
from hatrack.methods import METHODS
from hatrack.nets import NETS, build
from hatrack.report.read import read
from sealing import edited

SHAPE = (1, 8, 8)


def small(shape: tuple[int, ...]) -> torch.nn.Module:
    """A net with few units."""
    return build("mlp", shape, widths=(12, 8), dropout=0.0, input_dropout=0.0)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:3]


@pytest.fixture(scope="module")
def learner(tasks: list[Task]) -> Learner:
    torch.manual_seed(0)
    made = Learner(small(SHAPE), HAT(), epochs=3)
    for task in tasks[:2]:
        made.learn(task)
    return made


@pytest.fixture
def folder(learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(NETS.own, "small", small)
    learner.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_report_says_what_the_learner_knows(learner: Learner, tmp_path: Path) -> None:
    page = learner.report(tmp_path / "new" / "report")
    run = read(page.parent)
    assert page.name == "report.html"
    assert run.names == ["digits 0-1", "digits 2-3"]
    assert [list(row[: t + 1]) for t, row in enumerate(run.accuracy)] == learner.matrix()
    assert [(e.task, e.epoch, e.train_loss) for e in run.epochs] == [
        (e.task, e.epoch, e.train_loss) for known in learner.history for e in known.epochs
    ]
    assert [after.total for after in run.result.capacity or []] == [
        after["total"] for after in learner.capacity() or []
    ]
    assert run.result.reuse == learner.reuse()
    assert run.result.verified is not None
    assert run.result.verified.ok
    assert run.settings["settings"]["s_max"] == 400.0
    assert sorted(run.masks or {}) == ["fc1", "fc2"]
    text = page.read_text()
    assert "hat on own tasks" in text
    assert "not one bit differs" in text


def test_it_can_be_written_again_after_another_task(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(small(SHAPE), METHODS["sgd"](), epochs=1)
    with pytest.raises(HatrackError, match="no task is learned yet"):
        learner.report(tmp_path)
    learner.learn(Task("untested", tasks[0].train, tasks[0].valid))
    assert "no test accuracy was measured" in learner.report(tmp_path).read_text()
    learner.learn(tasks[1])
    learner.report(tmp_path)
    assert read(tmp_path).names == ["untested", "digits 2-3"]
    assert main(["report", str(tmp_path)]) == 0


def test_a_runs_own_folder_is_left_alone(learner: Learner, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(HatrackError, match="holds a run, which has a report of its own; give another folder"):
        learner.report(tmp_path)


def test_a_saved_learner_is_verified_and_reported_over_the_network_that_is_named(
    folder: Path, learner: Learner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(folder), "--net", "small"]) == 0
    assert capsys.readouterr().out.count(": unchanged (") == 2
    assert main(["report", str(folder), "--net", "small"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert [list(row[: t + 1]) for t, row in enumerate(read(folder).accuracy)] == learner.matrix()
    assert main(["verify", str(folder), "--net", "small"]) == 0
    assert hatrack.load(folder, small(SHAPE)).history == learner.history


def test_without_its_network_one_line_says_what_is_needed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, code in (("verify", 3), ("report", 2)):
        assert main([command, str(folder)]) == code
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "holds a saved learner, which does not name its network: give --net" in said
    assert main(["verify", str(folder), "--net", "mlp"]) == 3  # of other widths
    assert "does not match what was saved" in capsys.readouterr().err
    assert main(["report", str(folder), "--net", "small", "--against", str(folder)]) == 2
    assert "--against takes measures of runs" in capsys.readouterr().err


def test_a_saved_learner_that_was_edited_is_found_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(folder / "learner.json", lambda page: page.update(seed=5))
    page = json.loads((folder / "learner.json").read_text())
    page["epochs"] = 77
    (folder / "learner.json").write_text(json.dumps(page))
    assert main(["verify", str(folder), "--net", "small"]) == 1
    assert "learner.json was changed after it was written" in capsys.readouterr().out


def test_the_files_of_a_report_alone_prove_nothing(
    learner: Learner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner.report(tmp_path)
    assert main(["verify", str(tmp_path)]) == 3
    assert "its checkpoint is gone: there is nothing to verify it by" in capsys.readouterr().err
