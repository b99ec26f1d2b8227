"""HAT's forgetting ratio ρ: how much of what joint training would reach above chance has been lost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hatrack.errors import HatrackError
from hatrack.measure.accuracy import Matrix, checked


def rho_matrix(accuracy: Matrix, joint: Matrix, random: Sequence[float]) -> list[list[float | None]]:
    """Return ρ^{τ≤t} = (A^{τ≤t} − A_R^τ) / (A_J^{τ≤t} − A_R^τ) − 1 at [t][τ].

    `joint` holds, in row t, a network trained from scratch on tasks 1..t together; `random` the accuracy on each
    task of a classifier that draws labels by the training frequencies. Both of the same seed. 0 is as good as
    joint training, −1 is chance. None where joint training is no better and no worse than chance. It has no unit and
    no direction: tasks may be scored by what they like, errors among it.
    """
    if len(accuracy) != len(joint) or len(accuracy) != len(random):
        raise HatrackError(
            f"rho compares runs of one sequence; this run has {len(accuracy)} tasks, joint {len(joint)}, random "
            f"{len(random)}."
        )
    rows = zip(checked(accuracy), checked(joint), strict=True)
    return [[_rho(*figures) for figures in zip(mine, bound, random, strict=False)] for mine, bound in rows]


def rho(accuracy: Matrix, joint: Matrix, random: Sequence[float]) -> list[float | None]:
    """Return ρ^{≤t}, the mean of ρ^{τ≤t} over τ ≤ t, for every t; None where one of them is."""
    means: list[float | None] = []
    for row in rho_matrix(accuracy, joint, random):
        known = [value for value in row if value is not None]
        means.append(fmean(known) if len(known) == len(row) else None)
    return means


def _rho(mine: float, joint: float, random: float) -> float | None:
    return None if joint == random else (mine - random) / (joint - random) - 1
