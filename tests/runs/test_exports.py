"""Exports of runs and of saved learners: the command, what it notes, what a report and verify make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import hatrack
from hatrack import atomic
from hatrack.cli import main
from hatrack.runs import exports
from hatrack.ship.stored import digest

SMALL = ["--epochs", "2", "--set", "widths=[12, 8]"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("hatrack.ship.export.timing.TURNS", {1: 2, 64: 2})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exports") / "run"
    assert main(["run", *SMALL, "--out", str(path)]) == 0
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_all_tasks_in_80_columns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "run", "--format", "pt2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    names = [f"digits-{first}-{first + 1}" for first in range(0, 10, 2)]
    assert sorted(path.name for path in (run / "exports").iterdir()) == names
    accuracy = json.loads((run / "result.json").read_text())["accuracy"][-1]
    for name, reached in zip(names, accuracy, strict=True):
        card = json.loads((run / "exports" / name / "card.json").read_text())
        assert card["score"]["of"] == "test samples"
        assert card["score"]["learner"] == card["score"]["model.pt2"] == reached
    assert "digits 0-1, held against the learner on 72 test samples" in out


@pytest.mark.filterwarnings("default::hatrack.HatrackWarning")
def test_one_task_is_noted_shown_and_verified(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "report.html").read_text()
    assert main(["export", "run", "--task", "digits 2-3", "--int8", "--out", "there"]) == 0
    assert {path.name for path in Path("there/digits-2-3").iterdir()} == {
        "README.md", "card.json", "model.int8.onnx", "model.onnx",
    }  # fmt: skip
    card = json.loads(Path("there/digits-2-3/card.json").read_text())
    assert card["int8"]["calibration"].endswith("training samples")
    assert main(["export", "run", "--task", "digits 0-1", "--format", "pt2", "--out", "there"]) == 0
    noted = json.loads((run / "exports.json").read_text())["tasks"]
    assert list(noted) == ["digits 2-3", "digits 0-1"]
    assert [form["name"] for form in noted["digits 2-3"]["forms"]] == [
        "full network", "cut out, torch", "ONNX", "ONNX, int8",
    ]  # fmt: skip
    page = (run / "report.html").read_text()
    assert 'id="exports"' in page
    assert 'id="exports"' not in before
    assert page.count("<td>full network</td>") == 2
    assert f"{noted['digits 2-3']['forms'][1]['parameters']:,}".replace(",", "\u2009") in page
    assert main(["verify", "run"]) == 0
    assert main(["report", "run"]) == 0
    assert (run / "report.html").read_text() == page
    capsys.readouterr()
    text = (run / "exports.json").read_text()
    (run / "exports.json").write_text(text.replace('"held": "72', '"held": "92'))
    assert main(["verify", "run"]) == 1
    assert "exports.json was changed after it was written" in capsys.readouterr().out
    assert main(["report", "run"]) == 1
    assert "remove it, and export again" in capsys.readouterr().err


def test_a_saved_learner_is_held_against_drawn_inputs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = torch.rand(40, 6, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    net = hatrack.nets.build("mlp", (6,), widths=(7,))
    Path("net.py").write_text(
        "def small(shape):\n    import hatrack\n    return hatrack.nets.build('mlp', shape, widths=(7,))\n"
    )
    learner = hatrack.Learner(net, epochs=1, device="cpu")
    learner.learn(hatrack.Task("a", (x, y)), progress=False)
    learner.save("saved")
    capsys.readouterr()
    assert main(["export", "saved"]) == 2
    assert "give --net" in capsys.readouterr().err
    assert main(["export", "saved", "--net", "net.py:small", "--format", "torch"]) == 0
    assert "a, held against the learner on 64 inputs drawn from the seed" in capsys.readouterr().out
    assert not Path("saved/exports.json").exists()
    assert Path("saved/exports/a/network.py").exists()
    assert main(["verify", "saved", "--net", "net.py:small"]) == 0


@pytest.mark.filterwarnings("ignore::hatrack.HatrackWarning")
def test_what_is_released_or_replaced_is_not_exported(capsys: pytest.CaptureFixture[str]) -> None:
    """A name keeps its folder, whatever becomes of its task and of others."""

    def task(name: str, seed: int) -> hatrack.Task:
        x = torch.rand(40, 6, generator=torch.Generator().manual_seed(seed))
        return hatrack.Task(name, (x, (x[:, seed] > 0.5).long()))

    learner = hatrack.Learner(hatrack.nets.build("mlp", (6,), widths=(9,)), epochs=1, device="cpu")
    for seed, name in enumerate(("gone", "a b", "a-b")):
        learner.learn(task(name, seed), progress=False)
    old = learner.export("a b", "out", format="torch").card["cut_out"]
    learner.update("a b", task("a b", 3), "always", progress=False)
    learner.release("gone")
    learner.save("saved")
    Path("another.py").write_text(
        "import hatrack\ndef small(shape): return hatrack.nets.build('mlp', shape, widths=(9,))\n"
    )
    words = ["export", "saved", "--net", "another.py:small", "--format", "torch", "--out", "out"]
    capsys.readouterr()
    assert main(words) == 0
    cards = {path.parent.name: json.loads(path.read_text()) for path in Path("out").glob("*/card.json")}
    assert {folder: card["task"] for folder, card in cards.items()} == {"a-b": "a b", "a-b-2": "a-b"}
    assert cards["a-b"]["cut_out"] == digest(learner.cut_out("a b")) != old
    learner.certify("c.json", exports="out")
    assert [bool(about["exports"]) for about in json.loads(Path("c.json").read_text())["tasks"]] == [True, True]
    assert main([*words, "--task", "gone"]) == 2
    assert "task 'gone' (number 0) was released" in capsys.readouterr().err
    learner.release("a b")
    assert learner.export("a-b", "out", format="torch").folder.name == "a-b-2"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("export nowhere", "no run at 'nowhere': there is no such folder."),
        ("export run --task digits", "unknown task 'digits'; did you mean 'digits "),
        ("export run --format tflite", "unknown format 'tflite'. Accepted: onnx, pt2, torch."),
        ("export run --format pt2 --int8", "int8 is made of the ONNX file, got format='pt2'; add onnx to it."),
        ("export run --net alexnet", "run/spec.toml: the net is 'mlp' here, got 'alexnet'; name that one, or none."),
    ],
)
def test_a_mistake_is_one_line(run: Path, words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(run.rglob("*"))
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"hatrack: {says}")
    assert [path for path in sorted(run.rglob("*")) if path.name != ".lock"] == [p for p in before if p.name != ".lock"]


def test_a_run_that_has_finished_some_tasks(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped in its second task: the first is exported, the one in progress is not there."""
    (run / "result.json").unlink()
    checkpoint = run / "checkpoint"
    shutil.rmtree(checkpoint)
    first, second = hatrack.tasks("split-digits")[:2]
    learner = hatrack.Learner(hatrack.nets.build("mlp", (1, 8, 8), widths=(12, 8)), epochs=1, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        learner.learn(first, progress=False, on_epoch=_stop)
    learner.save(checkpoint)
    assert main(["export", "run", "--format", "pt2"]) == 2
    assert "has finished no task yet; go on with it: hatrack resume run" in capsys.readouterr().err
    learner.abandon()
    learner.learn(first, progress=False)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(second, progress=False, on_epoch=_stop)
    learner.save(checkpoint)
    assert main(["export", "run", "--task", "digits 2-3", "--format", "pt2"]) == 2
    assert "unknown task 'digits 2-3'" in capsys.readouterr().err
    assert main(["export", "run", "--format", "pt2"]) == 0
    assert [path.name for path in (run / "exports").iterdir()] == ["digits-0-1"]


def _stop(epoch: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.filterwarnings("default::hatrack.HatrackWarning")
def test_samples_that_are_gone_are_said_and_drawn(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(spec: object) -> None:
        raise hatrack.HatrackError("no such folder")

    monkeypatch.setattr(exports, "sequence_of", gone)
    assert main(["export", "run", "--format", "pt2", "--task", "digits 0-1"]) == 0
    out, err = capsys.readouterr()
    assert "samples are not at hand (no such folder); exports are held against drawn inputs" in err
    assert "on 64 inputs drawn from the seed" in out


@pytest.mark.filterwarnings("default::hatrack.HatrackWarning")
def test_figures_that_cannot_be_noted_are_said(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = atomic.write

    def locked(path: Path, content: bytes | str) -> None:
        if path.name == "exports.json":
            raise PermissionError(13, "Permission denied", str(path))
        real(path, content)

    monkeypatch.setattr(atomic, "write", locked)
    assert main(["export", "run", "--format", "pt2", "--task", "digits 0-1", "--out", "there"]) == 0
    assert "figures of task 'digits 0-1' are not noted in 'run': Permission denied" in capsys.readouterr().err
    assert Path("there/digits-0-1/model.pt2").exists()
