"""pytest --hatrack-certificate: a test a task, which fails when the task moved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hatrack import HAT, Learner, Task


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certified")
    torch.manual_seed(0)
    learner = Learner(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU()), HAT(), epochs=1, device="cpu")
    for name in ("cats", "dogs"):
        x = torch.randn(20, 4)
        learner.learn(Task(name, (x, (x[:, 0] > 0).long())), progress=False)
    learner.save(folder / "saved")
    learner.certify(folder / "certificate.json")
    with torch.no_grad():
        learner.model.heads[1].weight[0, 0] += 1
    learner.save(folder / "moved")
    learner.stored.clear()
    learner.save(folder / "moved")
    return folder


def tried(folder: Path, *words: str | Path) -> tuple[int, str]:
    """Run pytest on an empty folder, with the plugin named as an installed one would be found."""
    options = ["-p", "hatrack.pytest_plugin", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder]
    command = [sys.executable, "-m", "pytest", *options, *words]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, env=environment)
    return done.returncode, done.stdout + done.stderr


def given(folder: Path, model: str) -> list[str | Path]:
    return ["--hatrack-certificate", folder / "certificate.json", "--hatrack-model", folder / model]


def test_tasks_that_are_as_they_were_pass(certified: Path) -> None:
    code, told = tried(certified, *given(certified, "saved"), "-v")
    assert code == 0, told
    assert "hatrack[cats] PASSED" in told
    assert "hatrack[dogs] PASSED" in told


def test_a_task_that_moved_fails_alone_and_is_named(certified: Path) -> None:
    code, told = tried(certified, *given(certified, "moved"))
    assert code == 1
    assert "1 failed, 1 passed" in told
    assert "dogs: changed: head/weight" in told
    assert "Traceback" not in told


def test_they_stand_beside_other_tests_and_are_chosen_as_these_are(certified: Path) -> None:
    (certified / "test_mine.py").write_text("def test_mine():\n    pass\n")
    code, told = tried(certified, "test_mine.py", *given(certified, "saved"), "-k", "mine or cats")
    assert code == 0
    assert "2 passed, 1 deselected" in told


@pytest.mark.parametrize(
    ("edit", "said"),
    [("", "cannot be read as a certificate"), ("{}", "cannot be read as a certificate"), (" ", "was changed after")],
)
def test_a_certificate_that_was_edited_lets_nothing_pass(edit: str, said: str, certified: Path, tmp_path: Path) -> None:
    text = (certified / "certificate.json").read_text()
    (tmp_path / "certificate.json").write_text(text + edit if edit == " " else edit)
    code, told = tried(tmp_path, *given(tmp_path, "saved")[:3], certified / "saved")
    assert code != 0
    assert said in told


def test_what_is_missing_fails_in_one_line(certified: Path) -> None:
    code, told = tried(certified, *given(certified, "nowhere"))
    assert code == 1
    assert "2 failed" in told
    assert "FileNotFoundError" in told
    code, told = tried(certified, *given(certified, "saved")[:2])
    assert code == 4
    assert "go together; give both" in told
    code, told = tried(certified, *given(certified, "saved"), "--hatrack-key", "0" * 64)
    assert code == 1
    assert "is not signed" in told


def test_nothing_heavy_is_imported_when_pytest_starts(certified: Path) -> None:
    code = "import sys, hatrack.pytest_plugin; print({'numpy', 'torch', 'safetensors'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "set()\n"
