"""hatrack certify: verify, certify, print the checker; and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hatrack import HAT, Learner, Task
from hatrack.cli import main
from hatrack.nets import build
from hatrack.ship.certificate.check_hatrack import compare

SMALL = ["--epochs", "1", "--set", "widths=[10, 6]", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certified") / "run"
    assert main(["run", *SMALL, "--out", str(folder)]) == 0
    return folder


def test_a_run_is_certified_and_checked_by_what_checker_prints(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", str(run), "--out", str(tmp_path / "1.json")]) == 0
    assert f"→ {tmp_path / '1.json'}" in capsys.readouterr().out.replace("\n", "")
    assert main(["certify", str(run), "--out", str(tmp_path / "2.json"), "--previous", str(tmp_path / "1.json")]) == 0
    capsys.readouterr()
    assert main(["certify", "--checker"]) == 0
    (tmp_path / "check.py").write_text(capsys.readouterr().out)
    words = [str(tmp_path / "1.json"), str(tmp_path / "2.json"), str(run)]
    done = subprocess.run([sys.executable, "-I", tmp_path / "check.py", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tasks = json.loads((run / "result.json").read_text())["tasks"]
    assert done.stdout == "".join(f"{task['name']}: unchanged\n" for task in tasks) * 2


def test_what_has_changed_is_not_certified(run: Path, tmp_path: Path) -> None:
    path = next((run / "checkpoint").glob("live-*"))
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert main(["certify", str(run), "--out", str(tmp_path / "c.json")]) == 1
    finally:
        path.write_bytes(data)
    assert main(["certify", str(tmp_path), "--out", str(tmp_path / "c.json")]) in (2, 3)
    assert main(["certify"]) == 2
    assert not list(tmp_path.iterdir())


def test_a_saved_learner_is_certified_with_its_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = Learner(build("mlp", (4,)), HAT(), epochs=1, device="cpu")
    x = torch.randn(20, 4)
    learner.learn(Task("t", (x, (x[:, 0] > 0).long())), progress=False)
    learner.save(tmp_path / "saved")
    out = tmp_path / "c.json"
    assert main(["certify", str(tmp_path / "saved"), "--out", str(out)]) == 3
    assert main(["certify", str(tmp_path / "saved"), "--out", str(out), "--net", "mlp"]) == 0
    assert compare(out, tmp_path / "saved") == {"t": []}
