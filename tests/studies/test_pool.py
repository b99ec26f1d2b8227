"""The pool: results, talk, failures, and workers that die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.studies.pool import Pool

from . import labours


def silent(item: Any, message: Any) -> None:
    raise AssertionError(message)


def test_everything_is_done_once_and_items_are_drawn_as_workers_are_free() -> None:
    drawn = []

    def items() -> Iterator[int]:
        for item in range(5):
            drawn.append(item)
            yield item

    results: dict[int, int] = {}
    for done in Pool(1).run(items(), labours.double, silent):
        results[done.item] = done.value
        assert len(drawn) <= len(results) + 1
    assert results == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}


def test_a_worker_may_ask() -> None:
    heard: list[tuple[str, str]] = []

    def hear(item: str, message: str) -> str:
        heard.append((item, message))
        return message.upper()

    answers = {done.item: done.value for done in Pool(2).run(["a", "b"], labours.ask, hear)}
    assert answers == {"a": ["A0", "A1", "A2"], "b": ["B0", "B1", "B2"]}
    assert sorted(heard) == [(item, f"{item}{i}") for item in "ab" for i in range(3)]


def test_parts_of_an_item_are_over_before_the_rest() -> None:
    over = [(done.item, done.value) for done in Pool(1).run([7], labours.in_parts, silent)]
    assert over == [((7, 0), None), ((7, 1), None), ((7, 2), None), (7, "whole")]


def test_a_failure_has_a_reason_and_stops_nobody() -> None:
    over = {done.item: done for done in Pool(1).run(["ours", "theirs", "fine"], labours.fail, silent)}
    assert (over["ours"].reason, over["ours"].trace) == ("asked for too much.", "")
    assert over["theirs"].reason == "ZeroDivisionError: by zero, indeed"
    assert "labours.py" in over["theirs"].trace
    assert (over["fine"].reason, over["fine"].value) == (None, "fine")


def test_a_worker_whose_gpu_has_failed_gets_no_more_work() -> None:
    over = {done.item: done for done in Pool(1).run([0, 1, 2, 3], labours.lose_the_gpu, silent)}
    assert over[1].reason == "AcceleratorError: an illegal memory access"
    assert over[0].value != over[2].value == over[3].value


def test_the_work_of_a_killed_worker_is_given_out_again(tmp_path: Path) -> None:
    [done] = Pool(1).run([tmp_path / "attempts"], labours.die_twice, silent)
    assert (done.reason, done.value) == (None, 2)


def test_work_that_kills_every_worker_is_given_up_and_the_rest_is_done() -> None:
    over = {done.item: done for done in Pool(1).run([1, 2, 3], labours.die, silent)}
    assert over[1].reason is not None
    assert over[1].reason.startswith("its worker was killed (SIGKILL), 3 times in a row")
    assert [over[item].value for item in (2, 3)] == [2, 3]


def test_workers_are_numbered() -> None:
    found = [done.value for done in Pool(2, labours.number).run([0, 1], labours.which, lambda item, message: None)]
    assert sorted(found) == ["0", "1"]


def test_a_pool_needs_a_worker() -> None:
    with pytest.raises(HatrackError, match="workers must be at least 1, got 0"):
        Pool(0)
