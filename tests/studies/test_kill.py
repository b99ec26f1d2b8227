"""A study killed with SIGKILL, one worker of it or the whole tree, goes on and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TEXT = """
seeds = [0]
benchmarks = ["split-digits"]
methods = ["hat", "ewc"]
measures = ["acc"]
[shared]
epochs = 6
widths = [24]
lr_patience = 50
"""
COMMAND = [sys.executable, "-c", "import sys; from hatrack.cli import main; sys.exit(main())"]


def start(folder: Path) -> subprocess.Popen[str]:
    (folder / "small.toml").write_text(TEXT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [*COMMAND, "study", "small.toml", "--workers", "2", "--device", "cpu"]
    return subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def children(parent: int) -> list[int]:
    """Return the workers of a process: those it started with Python's spawn."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(stat[1]) == parent and b"spawn_main" in command:
                found.append(int(entry.name))
    return found


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def under_way(folder: Path) -> list[Path]:
    """Return the runs that have a checkpoint and no result."""
    runs = (folder / "studies" / "small" / "runs").glob("*/checkpoint/learner.json")
    return [file.parents[1] for file in runs if not (file.parents[1] / "result.json").exists()]


def outcomes(folder: Path) -> dict[str, Any]:
    found = {}
    for file in sorted((folder / "studies" / "small" / "runs").glob("*/result.json")):
        result = json.loads(file.read_text())
        found[file.parent.name] = [result["accuracy"], result["capacity"], result["spec"]]
    return found


@pytest.mark.slow
def test_killed_and_started_again(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    process = start(whole)
    _, err = process.communicate(timeout=1500)
    assert process.returncode == 0, err

    # One worker is killed in the middle: the study notices, and the run goes on with a new one.
    process = start(cut)
    wait_for(lambda: under_way(cut))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    time.sleep(0.5)
    assert process.poll() is None

    # Then all of them, the parent first: its workers must not outlive it.
    workers = wait_for(lambda: len(found := children(process.pid)) == 2 and found)
    wait_for(lambda: under_way(cut))
    process.kill()
    process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)

    finished = {p: p.stat().st_mtime_ns for p in (cut / "studies").rglob("result.json")}
    process = start(cut)
    _, err = process.communicate(timeout=1500)
    assert process.returncode == 0, err
    assert outcomes(cut) == outcomes(whole)
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    assert (cut / "studies" / "small" / "report.html").exists()
