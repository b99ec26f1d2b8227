from __future__ import annotations

import json
from pathlib import Path

import pytest

from hatrack.errors import HatrackError
from hatrack.measure import MEASURES, REFERENCES, SERVES, Measure, missing, summary

HAND = [[0.8], [0.6, 0.35]]
JOINT = [[0.9], [0.7, 0.6]]


def test_a_run_alone_names_what_its_other_figures_wait_for() -> None:
    found = summary(HAND)
    assert found["acc"] == pytest.approx(0.475)
    assert found["bwt"] == pytest.approx(-0.2)
    assert found["forgetting"] == pytest.approx(0.2)
    assert found["fwt"] is found["rho"] is found["rho_each"] is found["ncl"] is None
    assert found["missing"] == {"fwt": ["one"], "rho": ["joint", "random"], "ncl": ["ncl"]}
    assert json.loads(json.dumps(found)) == found


def test_with_every_reference_run_nothing_is_missing() -> None:
    found = summary(
        HAND, one=[0.7, 0.4], joint=JOINT, random=[0.5, 0.1], ncl=JOINT, tasks=[{"test": 100}, {"test": 300}]
    )
    assert found["fwt"] == pytest.approx(0.025)
    assert found["rho_each"] == pytest.approx([-0.25, -0.5])
    assert found["rho"] == pytest.approx(-0.5)
    assert found["ncl"] == pytest.approx(-0.175)
    assert found["acc_weighted"] == pytest.approx((60 + 105) / 400)
    assert found["bwt_weighted"] == pytest.approx(100 * -0.2 / 400 * 2)
    assert found["missing"] == {}


def test_half_of_what_rho_needs_is_not_enough() -> None:
    found = summary(HAND, random=[0.5, 0.1])
    assert found["rho"] is None
    assert found["missing"]["rho"] == ["joint"]


def test_missing_names_the_runs_in_order() -> None:
    assert missing("rho", []) == ("joint", "random")
    assert missing("rho", ["joint", "one"]) == ("random",)
    assert missing("acc", []) == ()
    with pytest.raises(HatrackError, match="unknown measure 'roh'; did you mean 'rho'"):
        missing("roh", [])


def test_a_run_stores_what_says_so_in_this_order() -> None:
    """result.json is compared byte for byte."""
    assert [name for name, measure in MEASURES.items() if measure.stored != "no"] == [
        *("acc", "bwt", "fwt", "forgetting", "rho", "ncl", "acc_weighted", "bwt_weighted"),
        *("acc_free", "task_acc", "none_auroc"),
    ]
    assert list(summary(HAND)) == [
        *("acc", "bwt", "fwt", "forgetting", "rho", "rho_each", "ncl", "acc_weighted", "bwt_weighted"),
        *("acc_free", "task_acc", "none_auroc", "missing"),
    ]


@pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
def test_every_measure_has_every_word(measure: Measure) -> None:
    assert MEASURES[measure.name] is measure
    for text in (measure.title, measure.meaning):
        assert len(text) > 3
        assert text == text.strip(" .")
    assert set(measure.needs) <= set(REFERENCES)
    low, high = measure.bounds
    assert low is None or high is None or low < high
    assert measure.forms[0] == measure.name
    assert len(measure.forms) == 1 + measure.per_task + (measure.of_task is not None) + (measure.of_layer is not None)


def test_the_docs_name_every_measure_and_each_of_its_forms() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    for measure in MEASURES.values():
        row = next(line for line in docs.splitlines() if line.startswith(f"| `{measure.name}` "))
        assert all(f"`{form}`" in row for form in measure.forms)
        assert f"| {measure.said} |" in row
        assert all(f"`{method}`" in row for method in measure.against)


def test_a_method_serves_as_one_reference() -> None:
    assert SERVES == {"one": "one", "joint": "joint", "random": "random", "sgd": "ncl"}


def test_a_measure_of_somebody_else_is_one_record() -> None:
    last = Measure("last", "accuracy on the last task", "just learned", lambda result: result["accuracy"][-1][-1])
    assert last.forms == ["last", "last@t"]
    assert last.value({"accuracy": HAND}) == 0.35
    above = Measure("above", "x", "y", lambda result, random: result["accuracy"][-1][-1] - random[-1], ("random",))
    assert above.value({"accuracy": HAND}) is None
    assert above.value({"accuracy": HAND}, {"random": [0.5, 0.25]}) == pytest.approx(0.1)
