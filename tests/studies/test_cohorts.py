"""Runs that differ in their seed are carried out together, and end as they would alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hatrack.runs.spec import resolve
from hatrack.studies import engine
from hatrack.studies.cohorts import Group, each, grouped, work_together
from hatrack.studies.job import Job, Step, carry_out
from hatrack.studies.pool import Done


def job(path: Path, seed: int, method: str = "sgd") -> Job:
    given = {"method": method, "epochs": 1, "device": "cpu", "seed": seed}
    return Job(path, resolve(given, [("widths", [8])]))


def test_jobs_that_differ_in_their_seed_form_a_group(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed, method) for seed in range(3) for method in ("sgd", "hat")]
    groups = grouped(jobs, largest=2)
    assert [[(j.spec.method, j.spec.seed) for j in group.jobs] for group in groups] == [
        [("sgd", 0), ("sgd", 1)],
        [("sgd", 2)],
        [("hat", 0), ("hat", 1)],
        [("hat", 2)],
    ]


def outcome(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((path / "result.json").read_text())
    return {key: value for key, value in result.items() if key not in ("seconds", "memory")}


def test_a_group_ends_as_each_would_alone_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group((job(tmp_path / "a", 0), job(tmp_path / "b", 1), job(tmp_path / "c", 2)))
    (tmp_path / "c").write_text("not a folder")
    told: list[Any] = []
    reasons = work_together(group, told.append)
    assert reasons[:2] == [None, None]
    assert reasons[2] is not None
    assert "already holds something" in reasons[2][0]
    assert {place for place, _ in told} == {0, 1}
    assert (1, Step(5, 5, 0)) in told
    carry_out(job(tmp_path / "alone", 1), lambda message: None)
    assert outcome(tmp_path / "b") == outcome(tmp_path / "alone")
    ends = list(each(Done(group, value=reasons)))
    assert [end.reason is None for end in ends] == [True, True, False]
    assert [end.reason for end in each(Done(group, reason="killed"))] == ["killed"] * 3


def test_on_gpus_groups_are_given_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        """A pool of this process alone."""

        def __init__(self, size: int, prepare: object) -> None:
            assert size == 1

        def run(self, items: list[Group], work: Any, hear: Any) -> Any:
            for item in items:
                assert isinstance(item, Group)
                hear(item, (len(item.jobs) - 1, "done"))
                yield Done(item, value=[None] * len(item.jobs))

    monkeypatch.setattr(engine, "Pool", Here)
    monkeypatch.setattr(engine, "default_workers", lambda device: 1)
    jobs = [job(tmp_path / str(seed), seed) for seed in range(3)]
    jobs = [Job(j.path, j.spec.model_copy(update={"device": "cuda"})) for j in jobs]
    heard: list[str] = []
    ends = list(engine.Local().run(jobs, lambda which, message: heard.append(f"{which.name} {message}")))
    assert [end.item.name for end in ends] == ["0", "1", "2"]
    assert heard == ["2 done"]
