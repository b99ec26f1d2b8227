"""Measures read from a result, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.studies.measures import measure

RESULT: dict[str, Any] = {
    "accuracy": [[0.9], [0.8, 0.6]],
    "metrics": {"acc": 0.7, "rho": -0.2, "rho_each": [0.0, -0.2], "bwt": -0.1, "fwt": None},
    "capacity": [{"total": 0.1, "layers": {"fc1": 0.2}}, {"total": 0.3, "layers": {"fc1": 0.5}}],
    "blocked": [{"total": 0.0, "layers": {"fc1": 0.0}}, {"total": 0.4, "layers": {"fc1": 0.6}}],
    "facts": [{}, {"F-each": 0.25, "G-each": None}],
    "seconds": 12.5,
    "memory": 1024,
    "parameters": 10,
    "kept": 2048,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acc", 0.7),
        ("acc@1", 0.9),
        ("acc@2", 0.7),
        ("acc1@2", 0.8),
        ("acc2@2", 0.6),
        ("acc3", None),
        ("acc@3", None),
        ("rho@1", 0.0),
        ("rho@2", -0.2),
        ("rho", -0.2),
        ("fwt", None),
        ("ncl", None),
        ("capacity", 0.3),
        ("capacity@1", 0.1),
        ("capacity:fc1@2", 0.5),
        ("capacity:fc9", None),
        ("blocked", 0.4),
        ("blocked:fc1@2", 0.6),
        ("F-each@2", 0.25),
        ("F-each@1", None),
        ("G-each", None),
        ("acc@half", 0.9),
        ("capacity@half", 0.1),
        ("seconds", 12.5),
        ("memory", 1024),
        ("parameters", 10),
        ("kept", 2048),
    ],
)
def test_values(name: str, value: float | None) -> None:
    assert measure(name).of_run(RESULT) == (None if value is None else pytest.approx(value))


def test_a_method_without_masks_has_no_capacity() -> None:
    assert measure("capacity").of_run({**RESULT, "capacity": None}) is None


@pytest.mark.parametrize(("name", "tasks"), [("acc", 1), ("acc@9", 9), ("acc3", 3), ("acc3@4", 4), ("rho@half", 2)])
def test_how_many_tasks_it_takes(name: str, tasks: int) -> None:
    assert measure(name).tasks == tasks


def test_what_they_need_and_which_way_is_better() -> None:
    assert measure("rho@2").needs == ("joint", "random")
    assert measure("fwt").needs == ("one",)
    assert measure("acc").needs == ()
    assert (measure("acc").sign, measure("forgetting").sign, measure("seconds").sign) == (1, -1, -1)


@pytest.mark.parametrize(
    "name", ["", "acc@0", "acc0", "bwt@2", "rho1@2", "acc:fc1", "Acc", "acc@x", "F-each:fc1", "acc3@2"]
)
def test_what_does_not_exist(name: str) -> None:
    with pytest.raises(HatrackError, match="measure"):
        measure(name)
