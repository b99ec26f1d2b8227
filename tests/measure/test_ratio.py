from __future__ import annotations

import pytest

from hatrack.errors import HatrackError
from hatrack.measure import rho, rho_matrix

RANDOM = [0.5, 0.1]
JOINT = [[0.9], [0.7, 0.6]]


def test_rho_for_every_pair_and_its_mean_for_every_t() -> None:
    accuracy = [[0.8], [0.6, 0.35]]
    table = rho_matrix(accuracy, JOINT, RANDOM)
    assert table[0] == pytest.approx([0.3 / 0.4 - 1])
    assert table[1] == pytest.approx([0.1 / 0.2 - 1, 0.25 / 0.5 - 1])
    assert rho(accuracy, JOINT, RANDOM) == pytest.approx([-0.25, -0.5])


def test_joint_training_itself_is_zero_and_chance_is_minus_one() -> None:
    assert rho(JOINT, JOINT, RANDOM) == [0, 0]
    assert rho([[0.5], [0.5, 0.1]], JOINT, RANDOM) == [-1, -1]


def test_better_than_joint_is_above_zero() -> None:
    assert rho([[1.0], [0.7, 0.6]], JOINT, RANDOM)[0] == pytest.approx(0.25)


def test_joint_at_chance_leaves_the_ratio_undefined() -> None:
    joint = [[0.9], [0.7, 0.1]]
    assert rho_matrix([[0.8], [0.6, 0.3]], joint, RANDOM)[1][1] is None
    assert rho([[0.8], [0.6, 0.3]], joint, RANDOM) == [pytest.approx(-0.25), None]


def test_runs_of_other_lengths_are_refused() -> None:
    with pytest.raises(HatrackError, match="this run has 2 tasks, joint 1, random 2"):
        rho(JOINT, JOINT[:1], RANDOM)
    with pytest.raises(HatrackError, match="joint 2, random 1"):
        rho(JOINT, JOINT, RANDOM[:1])
