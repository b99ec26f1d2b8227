"""What a study prints while it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.runs.spec import resolve
from hatrack.show.study import StudyProgress
from hatrack.studies.job import Job, Step
from report.folder import edit_result, write_run


def test_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = StudyProgress(lambda: now)
    spec = resolve({"device": "cpu"})
    a, b = Job(tmp_path / "a", spec), Job(tmp_path / "b", spec)
    progress.planned(2, 1)
    progress.said(a, Step(0, 5, 1))
    now = 31.0
    progress.said(b, Step(4, 5, 3))
    progress.said(b, "little of the network is free")
    progress.said(a, "little of the network is free")
    write_run(a.path)
    edit_result(a.path, metrics={"acc": 0.5}, seconds=7)
    progress.over(a, None)
    progress.over(b, "it broke.")
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "2 runs to do; 1 run finished before",
        "[0/2, 0:31] under way: a task 1/5, b task 5/5",
        "[1/2, 0:31] a: accuracy 0.5000, 0:07",
        "[2/2, 0:31] b: FAILED, it broke.",
    ]
    assert err == "hatrack: b: little of the network is free\n"
