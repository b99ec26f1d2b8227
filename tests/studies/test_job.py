"""One run of a study: started, gone on with, and waited for while another process has it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from hatrack.runs.folder import lock
from hatrack.runs.spec import resolve
from hatrack.studies import job as module
from hatrack.studies.job import Job, Step, execute, executing


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.runs.runner.write_report", lambda path: (path / "report.html").write_text("made"))
    monkeypatch.setattr(module, "POLL", 0.02)


def job(path: Path) -> Job:
    return Job(path, resolve({"method": "sgd", "epochs": 2, "device": "cpu"}, [("widths", [8])]))


def test_it_says_where_it_stands(tmp_path: Path) -> None:
    told: list[Any] = []
    execute(job(tmp_path / "a"), told.append)
    assert told[:4] == [Step(0, 5, 0), Step(0, 5, 1), Step(0, 5, 2), Step(1, 5, 0)]
    assert told[-1] == Step(5, 5, 0)
    assert job(tmp_path / "a").done


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    execute(job(tmp_path / "a"), lambda message: None)
    before = (tmp_path / "a" / "result.json").stat().st_mtime_ns
    told: list[Any] = []
    execute(job(tmp_path / "a"), told.append)
    assert (tmp_path / "a" / "result.json").stat().st_mtime_ns == before
    assert told == []


def test_a_report_that_a_killed_process_did_not_come_to_is_made(tmp_path: Path) -> None:
    execute(job(tmp_path / "a"), lambda message: None)
    (tmp_path / "a" / "report.html").unlink()
    assert not job(tmp_path / "a").done
    execute(job(tmp_path / "a"), lambda message: None)
    assert job(tmp_path / "a").done


def test_it_goes_on_where_this_machine_has_its_devices(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir()
    elsewhere = job(path).spec.toml().replace('device = "cpu"', 'device = "cuda:9"').replace('"eager"', '"graph"')
    assert "cuda:9" in elsewhere
    (path / "spec.toml").write_text(elsewhere)
    execute(job(path), lambda message: None)
    assert job(path).done


def test_it_waits_for_who_has_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir()
    (path / "spec.toml").write_text(job(path).spec.toml())
    held = lock(path)
    worker = threading.Thread(target=execute, args=(job(path), lambda message: None))
    worker.start()
    time.sleep(0.2)
    assert not (path / "metrics.jsonl").exists()
    os.close(held)
    worker.join(timeout=60)
    assert job(path).done


def test_others_have_their_turns_while_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir()
    (path / "spec.toml").write_text(job(path).spec.toml())
    held = lock(path)
    turns = executing(job(path), lambda message: None)
    for _ in range(50):
        next(turns)
    assert not (path / "metrics.jsonl").exists()
    os.close(held)
    assert sum(1 for _ in turns)
    assert job(path).done


def test_data_may_lie_elsewhere_when_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str | None] = []
    real = module.prepare

    def prepare(spec: Any, checkpoint: Any) -> Any:
        given.append(spec.data)
        return real(spec, checkpoint)

    monkeypatch.setattr(module, "prepare", prepare)
    first = job(tmp_path / "a")
    moved = Job(first.path, first.spec.model_copy(update={"data": str(tmp_path)}))
    first.path.mkdir()
    (first.path / "spec.toml").write_text(first.spec.toml())
    execute(moved, lambda message: None)
    assert given == [str(tmp_path)]
