"""Figures of tasks that are scored by other things than accuracy: by hand."""

from __future__ import annotations

import pytest

from hatrack.measure import MEASURES, reading, scale, summary

ERROR = {"score": "MAE", "larger_is_better": False, "test": 10}
R2 = {"score": "R²", "larger_is_better": True, "test": 10}
CLASSES = {"score": "accuracy", "larger_is_better": True, "test": 30}
ERRORS = [[2.0], [5.0, 1.0], [3.0, 1.5, 4.0]]  # of three tasks; less is better


def test_transfer_and_forgetting_of_errors_have_the_signs_of_gains() -> None:
    found = summary(ERRORS, tasks=[ERROR] * 3, one=[2.5, 1.0, 3.0], ncl=[[9.0], [9.0, 9.0], [4.0, 2.0, 4.0]])
    assert found["acc"] == pytest.approx(8.5 / 3)
    assert found["bwt"] == pytest.approx(-((3 - 2) + (1.5 - 1)) / 2)
    assert found["forgetting"] == pytest.approx(((3 - 2) + (1.5 - 1)) / 2)  # against the lowest there was
    assert found["fwt"] == pytest.approx(((2.5 - 2) + (1 - 1) + (3 - 4)) / 3)
    assert found["ncl"] == pytest.approx(((4 - 3) + (2 - 1.5) + 0) / 3)


def test_rho_has_no_unit_and_no_direction() -> None:
    mixed = [CLASSES, ERROR]
    found = summary([[0.9], [0.7, 2.0]], tasks=mixed, joint=[[0.9], [0.8, 1.0]], random=[0.5, 5.0])
    assert found["rho"] == pytest.approx(((0.2 / 0.3 - 1) + (-3 / -4 - 1)) / 2)


def test_there_is_no_mean_over_tasks_that_are_scored_by_several_things() -> None:
    found = summary([[0.9], [0.7, -2.0]], tasks=[CLASSES, R2])
    names = ["acc", "bwt", "fwt", "forgetting", "ncl", "acc_weighted", "bwt_weighted"]
    assert [found[name] for name in names] == [None] * 7
    assert found["undefined"] == dict.fromkeys(names, "no mean over tasks that are scored by accuracy, R²")
    assert "undefined" not in summary([[0.9], [0.7, -2.0]], tasks=[R2, R2])
    result = {"accuracy": [[0.9], [0.7, -2.0]], "tasks": [CLASSES, R2], "metrics": found}
    assert reading("acc@1").value(result) == 0.9
    assert reading("acc2").value(result) == -2.0


def test_a_measure_is_worded_and_bounded_as_its_scores_are() -> None:
    acc, forgetting = MEASURES["acc"], MEASURES["forgetting"]
    assert acc.on([CLASSES, {}]) is acc
    figures = acc.on([R2])
    assert (figures.title, figures.bounds, figures.larger_is_better) == ("average R²", (None, 1.0), True)
    errors = acc.on([ERROR])
    assert (errors.title, errors.bounds, errors.larger_is_better) == ("average MAE", (None, None), False)
    assert forgetting.on([ERROR]).meaning == "mean loss of MAE on old tasks, against the best there was"
    assert forgetting.on([ERROR]).larger_is_better is False
    assert MEASURES["capacity"].on([ERROR]) is MEASURES["capacity"]


def test_what_tasks_have_in_common() -> None:
    assert scale([CLASSES, {}]).name == "accuracy"
    assert scale([CLASSES, {"score": "mean IoU"}]) == scale([{"score": "mean IoU"}, {}])
    assert scale([CLASSES, {"score": "mean IoU"}]).shares
    assert not scale([CLASSES, R2]).shares
    assert scale([R2]).put("Accuracy of each; accuracy") == "R² of each; R²"
