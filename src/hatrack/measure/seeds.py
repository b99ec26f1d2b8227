"""Figures over seeds: mean with its 95 % interval, and tests between two methods run on the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from math import sqrt
from statistics import fmean
from typing import Any

from hatrack.errors import HatrackError

# Of the largest value: far above what rounding leaves of a mean over many tasks, far below one test sample.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """mean ± half, from n values; `half` is None for a single value."""

    mean: float
    half: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """The difference a − b over the same seeds: its interval, and the p-values of two two-sided tests.

    `t` is the paired t-test, `wilcoxon` the signed-rank test, which does not ask for normal differences. There is no
    `t` of a difference that is the same on all seeds: it is held against the spread, and there is none.
    """

    difference: Interval
    t: float | None
    wilcoxon: float


def interval(values: Sequence[float], level: float = 0.95, ddof: int = 1) -> Interval:
    """Return the mean and the half-width t((1+level)/2, n−1)·s/√n of its confidence interval.

    s has n − ddof below the line. ddof=1 is the unbiased choice and the default; HAT's published plots use
    ddof=0, which makes the interval too narrow (by 5 % for 10 seeds).
    """
    n = len(values)
    if n == 0:
        raise HatrackError("an interval needs at least one value, got none.")
    if n == 1:
        return Interval(float(values[0]), None, 1)
    quantile = float(_student().ppf((1 + level) / 2, n - 1))
    return Interval(fmean(values), quantile * _standard_error(values, ddof), n)


def paired(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Paired:
    """Compare two methods seed by seed; a[i] and b[i] must come from the same seed. Equal runs have p = 1."""
    if len(a) != len(b) or len(a) < 2:
        raise HatrackError(f"a paired test needs the same two or more seeds of both, got {len(a)} and {len(b)}.")
    differences = _without_rounding([x - y for x, y in zip(a, b, strict=True)], ROUNDING * max(map(abs, [*a, *b])))
    spread = interval(differences, level)
    if not any(differences):
        return Paired(spread, 1.0, 1.0)
    error = _standard_error(differences, ddof=1)
    t = 2 * float(_student().sf(abs(spread.mean) / error, len(a) - 1)) if len(set(differences)) > 1 else None
    return Paired(spread, t, float(import_module("scipy.stats").wilcoxon(differences).pvalue))


def _without_rounding(differences: Sequence[float], noise: float) -> list[float]:
    """Return differences of `noise` or less as 0, and those that lie so close together as all the same."""
    told_apart = [d if abs(d) > noise else 0.0 for d in differences]
    return told_apart if max(told_apart) - min(told_apart) > noise else [told_apart[0]] * len(told_apart)


def _standard_error(values: Sequence[float], ddof: int) -> float:
    mean = fmean(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - ddof) / len(values))


def _student() -> Any:
    return import_module("scipy.stats").t
