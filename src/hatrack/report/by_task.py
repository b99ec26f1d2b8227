"""What runs of a study have by task: a table with a row a task and a column a run, which pictures are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from statistics import fmean
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from hatrack.measure import Scale, reading, scale
from hatrack.measure.ratio import rho_matrix
from hatrack.report.read import Floats
from hatrack.report.source import Source, as_run


@runtime_checkable
class Finding(Protocol):
    """A run (None while it is not finished), and the accuracies of those that it is measured against, by name."""

    @property
    def result(self) -> Mapping[str, Any] | None: ...
    @property
    def references(self) -> Mapping[str, Any]: ...


Given: TypeAlias = Sequence[Source | Finding]


class Take(Protocol):
    """Returns a value a task of a run; None or NaN where there is none."""

    def __call__(self, result: Mapping[str, Any], given: Mapping[str, Any], /) -> Sequence[float | None]: ...


def by_task(runs: Given, take: Take) -> Floats:
    """Return a row a task and a column a run; NaN where there is no value, no column for a run without any."""
    series = [np.array(take(result, given), np.float64) for result, given in map(taken, runs) if result is not None]
    series = [one for one in series if np.isfinite(one).any()]  # None has become NaN
    count = max(map(len, series), default=0)
    return np.array(list(zip_longest(*series, fillvalue=np.nan)), np.float64).reshape(count, len(series))


def after_each(measure: str, result: Mapping[str, Any], given: Mapping[str, Any]) -> Sequence[float | None]:
    """Return a measure as it was after every task; ρ as the mean over the tasks that have one."""
    if measure == "rho" and {"joint", "random"} <= given.keys():
        known = [[value for value in row if value is not None] for row in ratios(result, given)]
        return [fmean(row) if row else None for row in known]
    return [reading(f"{measure}@{t}").value(result, given) for t in range(1, len(result["accuracy"]) + 1)]


def ratios(result: Mapping[str, Any], given: Mapping[str, Any]) -> list[list[float | None]]:
    """Return ρ of every task after every task."""
    return rho_matrix(result["accuracy"], given["joint"], given["random"])


def without_ratio(runs: Iterable[Given]) -> list[str]:
    """Name the tasks that have no ρ, which joint training gives them no room for, and when."""
    gaps: dict[int, set[int]] = {}
    for result, given in (taken(run) for found in runs for run in found):
        if result is None or not {"joint", "random"} <= given.keys():
            continue
        for t, row in enumerate(ratios(result, given), start=1):
            for task in (i for i, value in enumerate(row, start=1) if value is None):
                gaps.setdefault(task, set()).add(t)
    listed = "; ".join(f"task {task} after task {numbers(gaps[task])}" for task in sorted(gaps))
    return [f"Left out of the means, since joint training is no better than guessing there: {listed}."] if gaps else []


def scale_of(runs: Iterable[Given]) -> Scale:
    """Return what all tasks of all runs are scored by."""
    found = (result for given in runs for result, _ in map(taken, given) if result is not None)
    return scale(task for result in found for task in result.get("tasks") or ())


def when_learned(result: Mapping[str, Any], given: Mapping[str, Any]) -> Sequence[float | None]:
    """Return the score on each task just after learning it."""
    return [row[-1] for row in result["accuracy"]]


def at_the_end(result: Mapping[str, Any], given: Mapping[str, Any]) -> Sequence[float | None]:
    """Return the score on each task after the last one."""
    last: Sequence[float | None] = result["accuracy"][-1]
    return last


def row_means(table: Floats) -> Floats:
    """Return the mean of every row over what it has."""
    known = np.isfinite(table)
    counts = known.sum(axis=1)
    found: Floats = np.where(known, table, 0.0).sum(axis=1) / np.where(counts > 0, counts, np.nan)
    return found


def common_names(runs: Iterable[Given], count: int) -> list[str]:
    """Return the tasks' names where all runs have them in the same order, else nothing."""
    found = {
        tuple(task.get("name", "") for task in result.get("tasks") or ())
        for result, _ in (taken(run) for given in runs for run in given)
        if result is not None
    }
    names = list(found.pop()) if len(found) == 1 else []
    return names if len(names) == count and all(names) else []


def taken(run: Source | Finding) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return the result of a run and the accuracies of its references."""
    if isinstance(run, Finding):
        return run.result, run.references
    return run if isinstance(run, Mapping) else as_run(run).result.model_dump(by_alias=True), {}


def numbers(places: Iterable[int]) -> str:
    """Write 1, 2, 3, 5 as 1–3, 5."""
    runs: list[list[int]] = []
    for place in sorted(places):
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return ", ".join(f"{one[0]}–{one[-1]}" if len(one) > 2 else ", ".join(map(str, one)) for one in runs)
