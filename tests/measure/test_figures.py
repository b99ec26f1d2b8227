from __future__ import annotations

import json

import pytest

from hatrack.errors import HatrackError
from hatrack.measure import NEEDS, missing, summary

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
    found = summary(HAND, one=[0.7, 0.4], joint=JOINT, random=[0.5, 0.1], ncl=JOINT, sizes=[100, 300])
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
    assert set(NEEDS) <= set(summary(HAND))
