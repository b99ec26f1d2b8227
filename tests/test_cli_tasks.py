"""Runs on one's own data from the command line: folders of pictures; a sequence, and a network of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hatrack.cli import main

NET = """
from math import prod

from torch import nn


def make_net(shape: list[int], width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width), nn.ReLU())
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path / "cache"))
    for name, mode, side in (("cats", "RGB", 30), ("dogs", "L", 24)):
        write(Path("pictures") / name, mode, side)


def write(home: Path, mode: str, side: int) -> None:
    """Write dark and bright pictures with noise on them."""
    draw = np.random.default_rng(side)
    for label, kind in enumerate(("dark", "bright")):
        (home / kind).mkdir(parents=True)
        for row in range(16):
            grain = draw.integers(0, 100, (side, side + 4, 3), dtype=np.uint8) + np.uint8(120 * label)
            Image.fromarray(grain).convert(mode).save(home / kind / f"{row}.png")


TASKS = "--task cats=pictures/cats --task dogs=pictures/dogs --net mlp --set widths=[12] --set shape=[3,12,12]".split()


def test_folders_of_pictures_are_learned_and_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *TASKS, "--epochs", "8", "--set", "lr=0.02"]) == 0
    run = tmp_path / "runs" / "folders-hat-mlp-s0"
    spec = tomllib.loads((run / "spec.toml").read_text())
    where = {name: str(tmp_path / "pictures" / name) for name in ("cats", "dogs")}
    assert (spec["benchmark"], spec["benchmark_options"]) == ("folders", {"folders": where, "shape": [3, 12, 12]})
    result = json.loads((run / "result.json").read_text())
    assert [(task["name"], task["classes"], task["test"]) for task in result["tasks"]] == [
        ("cats", 2, 6),
        ("dogs", 2, 6),
    ]
    assert min(result["accuracy"][-1]) > 0.8
    capsys.readouterr()
    os.chdir(tmp_path / "cache")  # what is recorded means the same from anywhere
    assert main(["verify", str(run)]) == 0
    assert capsys.readouterr().out.count("unchanged") == 2
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert main(["resume", str(run)]) == 0
    assert "already finished" in capsys.readouterr().out


def test_a_run_that_was_killed_is_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "hatrack.cli", "run", *TASKS, "--epochs", "8", "--set", "lr_patience=8"]
    process = subprocess.Popen([*command, "--out", "cut"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not Path("cut/checkpoint/learner.json").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    assert not Path("cut/result.json").exists()
    os.rename("pictures/dogs", "elsewhere")
    assert main(["resume", "cut"]) == 2
    assert f"task 'dogs': {Path('pictures/dogs').absolute()} is not a folder" in capsys.readouterr().err
    os.rename("elsewhere", "pictures/dogs")
    assert main(["resume", "cut"]) == 0
    assert main(["run", *command[4:], "--out", "whole"]) == 0
    cut, whole = (json.loads(Path(run, "result.json").read_text()) for run in ("cut", "whole"))
    assert {key for key in whole if whole[key] != cut[key]} <= {"seconds", "memory", "files", "sha256"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--task cats=pictures/cats --benchmark cifar", "--task and --benchmark were both given; give one."),
        ("--task cats=pictures/cats --set benchmark=cifar", "benchmark was given twice, as 'folders' and as 'cifar'"),
        ("--task cats=pictures/cats --task cats=pictures/dogs", "two tasks are called 'cats'; give each --task a name"),
        ("--task pictures/cats", "--task takes NAME=DIR, such as --task cats=pictures/cats, got 'pictures/cats'."),
        ("--task cats=pictures/cows", "task 'cats': "),
        ("--task cats=pictures", "task 'cats': "),
        ("--task cats=pictures/cats --set shape=[3,32]", "task 'cats': shape must be (channels, height, width) with"),
        ("--benchmark folders", "benchmark 'folders' needs --set folders=VALUE."),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"hatrack: {says}")
    assert not Path("runs").exists()


def test_a_network_of_ones_own_learns_a_sequence_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text(NET)
    tables = '[[task]]\nfolder = "pictures/cats"\n[[task]]\nset = "digits"\nclasses = [0, 1]\n'
    Path("mine.toml").write_text(f"shape = [3, 24, 24]\n{tables}")
    words = "run --net net.py:make_net --benchmark sequence --set file=mine.toml --set width=6 --epochs 2 --out run"
    assert main(words.split()) == 0
    spec = tomllib.loads(Path("run/spec.toml").read_text())
    assert (spec["net"], spec["net_options"]) == ("net.py:make_net", {"width": 6})
    assert spec["benchmark_options"] == {"file": str(Path("mine.toml").absolute())}
    assert [task["name"] for task in json.loads(Path("run/result.json").read_text())["tasks"]] == ["cats", "digits"]
    assert main(["verify", "run"]) == 0
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().err.count("decoding folder-cats") == 1
