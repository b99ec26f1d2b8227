"""What the accuracy matrix says: average accuracy, backward and forward transfer, forgetting.

The matrix is ragged and lower-triangular: row t holds the test accuracy on tasks 1..t after learning task t, or
whatever else larger is better of (see `measures`, which turns errors round).
A measure over earlier tasks is None while there is only one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hatrack.errors import HatrackError

Matrix = Sequence[Sequence[float]]


def checked(accuracy: Matrix) -> Matrix:
    """Return the matrix, or raise where its rows do not grow by one."""
    lengths = [len(row) for row in accuracy]
    if not lengths or lengths != list(range(1, len(lengths) + 1)):
        raise HatrackError(
            f"an accuracy matrix has rows of 1, 2, 3, … entries (tasks learned so far), got rows of {lengths}."
        )
    return accuracy


def diagonal(accuracy: Matrix) -> list[float]:
    """Return a_tt: the accuracy on each task just after learning it."""
    return [row[-1] for row in checked(accuracy)]


def average_accuracy(accuracy: Matrix, sizes: Sequence[int] | None = None) -> float:
    """Return 1/T Σ_t a_Tt; with test-set `sizes` n_t, Σ n_t·a_Tt / Σ n_t (SPG's code)."""
    return _mean(checked(accuracy)[-1], sizes)


def backward_transfer(accuracy: Matrix, sizes: Sequence[int] | None = None) -> float | None:
    """Return the mean over t < T of a_Tt − a_tt; below 0 is forgetting.

    With test-set `sizes` it is SPG's T/(T−1) · Σ_t n_t·(a_Tt − a_tt) / Σ_t n_t, where n_T counts below the line;
    for equal sizes the two agree.
    """
    own = diagonal(accuracy)
    differences = [after - before for after, before in zip(accuracy[-1], own, strict=True)]
    count = len(differences)
    if count < 2:
        return None
    return _mean(differences, sizes) * count / (count - 1)


def forgetting(accuracy: Matrix) -> float | None:
    """Return the mean over t < T of max_{t ≤ l < T} a_lt − a_Tt (Chaudhry et al. 2018); above 0 is forgetting."""
    *earlier, last = checked(accuracy)
    if not earlier:
        return None
    return fmean(max(row[t] for row in earlier[t:]) - last[t] for t in range(len(earlier)))


def forward_transfers(accuracy: Matrix, one: Sequence[float]) -> list[float]:
    """Return a_tt − one_t for every task, where one_t is the accuracy of a network that learns task t alone."""
    return _less(diagonal(accuracy), one, "ONE")


def forward_transfer(accuracy: Matrix, one: Sequence[float]) -> float:
    """Return 1/T Σ_t (a_tt − one_t) (SPG)."""
    return fmean(forward_transfers(accuracy, one))


def differences_to_ncl(accuracy: Matrix, ncl: Matrix) -> list[float]:
    """Return a_Tt − ncl_Tt for every task, where ncl is the matrix of plain fine-tuning (naive learning)."""
    return _less(checked(accuracy)[-1], checked(ncl)[-1], "NCL")


def difference_to_ncl(accuracy: Matrix, ncl: Matrix) -> float:
    """Return 1/T Σ_t (a_Tt − ncl_Tt) (SPG, Table 11)."""
    return fmean(differences_to_ncl(accuracy, ncl))


def _less(mine: Sequence[float], theirs: Sequence[float], name: str) -> list[float]:
    if len(mine) != len(theirs):
        raise HatrackError(f"{name} has {len(theirs)} tasks, this run {len(mine)}; compare runs of one sequence.")
    return [a - b for a, b in zip(mine, theirs, strict=True)]


def _mean(values: Sequence[float], sizes: Sequence[int] | None) -> float:
    if sizes is None:
        return fmean(values)
    if len(sizes) != len(values) or any(size <= 0 for size in sizes):
        raise HatrackError(f"{len(values)} tasks need as many test-set sizes above 0, got {list(sizes)}.")
    return fmean(values, weights=sizes)
