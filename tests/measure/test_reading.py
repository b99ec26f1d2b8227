"""Measures read from a result, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.measure import MEASURES, reading

RESULT: dict[str, Any] = {
    "tasks": [{"test": 100}, {"test": 300}],
    "accuracy": [[0.9], [0.8, 0.6]],
    "metrics": {"acc": 0.7, "rho": -0.2, "rho_each": [0.0, -0.2], "bwt": -0.1, "fwt": None},
    "capacity": [{"total": 0.1, "layers": {"fc1": 0.2}}, {"total": 0.3, "layers": {"fc1": 0.5}}],
    "blocked": [{"total": 0.0, "layers": {"fc1": 0.0}}, {"total": 0.4, "layers": {"fc1": 0.6}}],
    "facts": [{}, {"F-each": 0.25, "G-each": None}],
    "seconds": 12.5,
    "memory": 1024,
    "parameters": 10,
    "learnable": 12,
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
        ("bwt@2", -0.1),
        ("acc_weighted", 0.65),
        ("capacity@half", 0.1),
        ("seconds", 12.5),
        ("memory", 1024),
        ("parameters", 10),
        ("learnable", 12),
        ("minutes", 12.5 / 60),
        ("kept", 2048),
    ],
)
def test_values(name: str, value: float | None) -> None:
    assert reading(name).value(RESULT) == (None if value is None else pytest.approx(value))


def test_a_method_without_masks_has_no_capacity() -> None:
    assert reading("capacity").value({**RESULT, "capacity": None}) is None


@pytest.mark.parametrize(("name", "tasks"), [("acc", 1), ("acc@9", 9), ("acc3", 3), ("acc3@4", 4), ("rho@half", 2)])
def test_how_many_tasks_it_takes(name: str, tasks: int) -> None:
    assert reading(name).tasks == tasks


def test_what_they_need_and_which_way_is_better() -> None:
    assert reading("rho@2").measure.needs == ("joint", "random")
    assert reading("fwt").measure.needs == ("one",)
    assert reading("acc").measure.needs == ()
    better = {name: MEASURES[name].larger_is_better for name in ("acc", "forgetting", "seconds")}
    assert better == {"acc": True, "forgetting": False, "seconds": False}


THREE: dict[str, Any] = {
    "tasks": [{"test": 100}, {"test": 300}, {"test": 200}],
    "accuracy": [[0.9], [0.8, 0.6], [0.7, 0.5, 0.8]],
    "metrics": {},
}
REFERENCES = {"one": [0.8, 0.7, 0.9], "joint": [[0.9], [0.9, 0.8], [0.9, 0.8, 0.8]], "random": [0.5, 0.5, 0.5]}
REFERENCES["ncl"] = [[0.9], [0.5, 0.8], [0.4, 0.4, 0.9]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bwt@1", None),
        ("bwt@2", -0.1),
        ("bwt@3", -0.15),
        ("forgetting@2", 0.1),
        ("forgetting@half", None),
        ("fwt@1", 0.1),
        ("fwt@2", 0.0),
        ("fwt", -0.1 / 3),
        ("ncl@2", 0.05),
        ("ncl@4", None),
        ("rho@1", 0.0),
        ("rho@2", (0.3 / 0.4 - 1 + 0.1 / 0.3 - 1) / 2),
        ("acc_weighted@2", (80 + 180) / 400),
        ("bwt_weighted@2", 100 * -0.1 / 400 * 2),
    ],
)
def test_every_measure_of_the_tasks_so_far_exists_after_each(name: str, value: float | None) -> None:
    expected = None if value is None else pytest.approx(value)
    assert reading(name).value(THREE, REFERENCES) == expected
    assert reading(name.partition("@")[0]).value({**THREE, "accuracy": [[0.9], [None, 0.5]]}, REFERENCES) is None


@pytest.mark.parametrize("name", ["fwt@2", "rho@2", "ncl@2", "fwt", "rho", "ncl"])
def test_without_its_references_there_is_no_value(name: str) -> None:
    assert reading(name).value(THREE) is None


def test_what_is_stored_counts_where_no_reference_is_at_hand() -> None:
    stored = {**THREE, "metrics": {"fwt": 0.25, "rho_each": [0.0, None]}}
    assert reading("fwt").value(stored) == 0.25
    assert reading("rho@1").value(stored) == 0.0
    assert reading("rho@2").value(stored) is None
    assert reading("rho@3").value(stored) is None
    assert reading("fwt@1").value(stored) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("acc", "average accuracy"),
        ("acc@3", "average accuracy after task 3"),
        ("acc1@2", "accuracy on task 1 after task 2"),
        ("capacity:conv1@half", "capacity used of conv1 after half of the tasks"),
    ],
)
def test_titles(name: str, said: str) -> None:
    assert reading(name).title == said


@pytest.mark.parametrize(
    "name",
    ["", "acc@0", "acc0", "seconds@2", "rho1@2", "acc:fc1", "Acc", "acc@x", "acc@", "acc@-1", "F-each:fc1", "acc3@2"],
)
def test_what_does_not_exist(name: str) -> None:
    with pytest.raises(HatrackError, match="measure"):
        reading(name)
