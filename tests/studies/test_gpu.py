"""Runs are carried out side by side, and end as they would alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hatrack.errors import HatrackWarning
from hatrack.runs.spec import resolve
from hatrack.studies import executor, gpu
from hatrack.studies.gpu import shares, work_together
from hatrack.studies.job import Job, Step, execute
from hatrack.studies.pool import Done
from sealing import timeless


def job(path: Path, seed: int, method: str = "sgd") -> Job:
    given = {"method": method, "epochs": 1, "device": "cpu", "seed": seed}
    return Job(path, resolve(given, [("widths", [8])]))


def test_jobs_are_dealt_out_among_gpus(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed) for seed in range(5)]
    assert [[j.spec.seed for j in share] for share in shares(jobs, 2)] == [[0, 2, 4], [1, 3]]
    assert len(shares(jobs[:1], 2)) == 1


def outcome(path: Path) -> dict[str, Any]:
    return timeless(path / "result.json")


@pytest.mark.parametrize("streams", [1, 2, 8])
def test_a_share_ends_as_each_would_alone_and_one_that_fails_stops_no_other(
    streams: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "STREAMS", streams)
    a, b, c = job(tmp_path / "a", 0), job(tmp_path / "b", 1, "hat"), job(tmp_path / "c", 2)
    c.path.write_text("not a folder")
    told: list[Any] = []
    work_together((a, b, c), told.append)
    ends = {said.item.name: said for said in told if isinstance(said, Done)}
    assert [ends[name].reason for name in "ab"] == [None, None]
    assert "already holds something" in (ends["c"].reason or "")
    assert (b, Step(5, 5, 0)) in told
    execute(job(tmp_path / "alone", 1, "hat"), lambda message: None)
    assert outcome(b.path) == outcome(tmp_path / "alone")


@pytest.mark.filterwarnings("default")
def test_what_the_library_says_is_said_of_the_run_whose_turn_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talking(job: Job, tell: object) -> Iterator[None]:
        for turn in range(2):
            warnings.warn(f"{job.name} warns in\nturn {turn}", HatrackWarning, stacklevel=1)
            logging.getLogger("hatrack.data").info("%s notes", job.name)
            yield

    monkeypatch.setattr(gpu, "executing", talking)
    a, b = job(tmp_path / "a", 0), job(tmp_path / "b", 1)
    told: list[Any] = []
    before = list(logging.getLogger("hatrack").handlers)
    work_together((a, b), told.append)
    first = [(one, line) for one in (a, b) for line in (f"{one.name} warns in turn 0", f"{one.name} notes")]
    assert told[:4] == first
    assert told[4] == (a, "a warns in turn 1")
    assert logging.getLogger("hatrack").handlers == before


def test_one_that_finds_no_room_is_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(job: Job, tell: object) -> Iterator[None]:
        if job.spec.seed == 1:
            raise torch.OutOfMemoryError("full")
        yield

    monkeypatch.setattr(gpu, "executing", full)
    jobs = tuple(job(tmp_path / str(seed), seed) for seed in range(2))
    told: list[Any] = []
    work_together(tuple(jobs), told.append)
    assert [done.item for done in told] == [jobs[0]]
    work_together(tuple(jobs[1:]), told.append)
    assert told[-1].reason == "OutOfMemoryError: full"


def test_a_process_whose_gpu_has_failed_ends_unless_one_run_alone_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(job: Job, tell: object) -> Iterator[None]:
        yield
        raise torch.AcceleratorError("an illegal memory access")

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(gpu, "executing", broken)
    monkeypatch.setattr("os._exit", end)
    jobs = tuple(job(tmp_path / str(seed), seed) for seed in range(2))
    told: list[Any] = []
    with pytest.raises(SystemExit):
        work_together(tuple(jobs), told.append)
    with pytest.raises(torch.AcceleratorError, match="illegal"):
        work_together(tuple(jobs[:1]), told.append)
    assert told == []


def test_on_gpus_shares_are_given_out_and_what_is_left_goes_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    class Here:
        """A pool of this process alone; run 1 kills its worker always, run 2 when it is beside run 1."""

        def __init__(self, size: int, prepare: object) -> None:
            assert size == 1

        def run(self, items: list[tuple[Job, ...]], work: Any, hear: Any) -> Any:
            for item in items:
                given.append([j.name for j in item])
                hear(item, (item[-1], "hello"))
                dead = "1" in given[-1]
                for one in item[:1] * 2 if dead else item:  # those that end before it, told twice
                    if one.name != "1":
                        yield Done(one)
                yield Done(item, reason="killed" if dead else None)

    monkeypatch.setattr(executor, "Pool", Here)
    monkeypatch.setattr(executor, "default_workers", lambda device: 1)
    jobs = [job(tmp_path / str(seed), seed) for seed in range(3)]
    jobs = [Job(j.path, j.spec.model_copy(update={"device": "cuda"})) for j in jobs]
    heard: list[str] = []
    ends = list(executor.Local().run(jobs, lambda which, message: heard.append(f"{which.name} {message}")))
    assert given == [["0", "1", "2"], ["1"], ["2"]]
    assert [(end.item.name, end.reason) for end in ends] == [("0", None), ("1", "killed"), ("2", None)]
    assert heard == ["2 hello", "1 hello", "2 hello"]


def test_a_share_is_carried_out_by_a_process_of_its_own(tmp_path: Path) -> None:
    jobs = [job(tmp_path / "a", 0), job(tmp_path / "b", 1, "hat")]
    said: list[tuple[str, Any]] = []
    ends = list(executor._pooled(shares(jobs, 1), 1, executor._of_share(lambda which, m: said.append((which.name, m)))))
    assert {end.item.name for end in ends[:-1]} == {"a", "b"}
    assert isinstance(ends[-1].item, tuple)
    assert all(end.reason is None for end in ends)
    assert ("b", Step(5, 5, 0)) in said
    assert all(one.done for one in jobs)
