"""The local executor: real worker processes, and what a run says on its way."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hatrack.errors import HatrackWarning
from hatrack.runs.spec import resolve
from hatrack.studies import executor
from hatrack.studies.job import Job, Step


def job(path: Path, **given: Any) -> Job:
    return Job(path, resolve({"method": "sgd", "epochs": 1, "device": "cpu", **given}, [("widths", [8])]))


def test_a_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    told: list[Any] = []
    [over] = executor.Local(4).run([job(tmp_path / "a")], lambda which, message: told.append((which.name, message)))
    assert (over.item.name, over.reason) == ("a", None)
    assert told[0] == ("a", Step(0, 5, 0))
    assert told[-1] == ("a", Step(5, 5, 0))
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert len(result["accuracy"]) == 5
    assert result["memory"] > 2**20
    assert (tmp_path / "a" / "report.html").exists()


def test_warnings_and_the_log_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def carried(which: Job, tell: Callable[[Any], Any]) -> None:
        warnings.warn("little\nis free", HatrackWarning, stacklevel=1)
        logging.getLogger("hatrack.data.cache").info("decoding %s", "mnist")
        tell(Step(1, 2, 3))

    monkeypatch.setattr(executor, "execute", carried)
    told: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        executor.work(job(tmp_path / "a"), told.append)
    assert told == ["little is free", "decoding mnist", Step(1, 2, 3)]


def test_as_many_workers_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 5}, raising=False)
    assert executor.default_workers("cpu") == 3
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert executor.default_workers("cuda") == 2
    assert executor.default_workers("cuda:1") == 1
