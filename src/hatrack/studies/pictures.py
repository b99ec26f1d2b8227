"""The pictures of a study's page: seed by seed, over the tasks, over settings, into the masks, compression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError
from hatrack.report import plots, study_plots
from hatrack.report.builder import Section, how, left_out, pictures
from hatrack.report.picture import Picture
from hatrack.report.read import Run, read
from hatrack.report.words import counted
from hatrack.studies.execute import Outcome
from hatrack.studies.file import Study
from hatrack.studies.findings import Finding
from hatrack.studies.table import Row, Table

LINES_AT_MOST = 20  # in one picture, before the points of a grid are left out
Draw = Callable[[], Picture]


def seed_by_seed(outcome: Outcome, made: Sequence[Table]) -> str:
    """Draw every measure on every benchmark."""
    return pictures(
        partial(study_plots.seeds, t.findings, m.text, on=t.benchmark, paper=t.paper(m))
        for m in outcome.study.measures
        for t in made
    )


def over_the_tasks(outcome: Outcome, made: Sequence[Table]) -> str:
    """Draw accuracy and ρ after each task, forward transfer to each where it is measured, and the accuracy on each."""
    study = outcome.study
    grid = {m.label for m in study.methods if m.family}
    left = grid if len(study.methods) > LINES_AT_MOST else set()  # their map says more than a hundred lines
    drawn = pictures(one for t in made for one in _over_tasks(study, t, left))
    return drawn + how(f"Left out: {counted(len(left), 'point')} of a grid, see Over the settings." if left else "")


def _over_tasks(study: Study, made: Table, left: set[str]) -> Iterator[Draw]:
    shown = [row for row in made.ours() if row.label not in left]
    if not shown:
        return
    among = [row.label for row in shown]

    def runs(*skipped: str) -> dict[str, Sequence[Finding]]:
        return {r.label: r.findings for r in shown if not any(f.run.spec.method in skipped for f in r.findings)}

    yield partial(study_plots.over_tasks, runs(), "acc", on=made.benchmark, among=among)
    yield partial(study_plots.over_tasks, runs("joint", "random"), "rho", on=made.benchmark, among=among)
    if any(m.measure.name == "fwt" for m in study.measures):
        yield partial(study_plots.forward_transfer, runs("one"), on=made.benchmark, among=among)
    yield partial(study_plots.each_task, runs(), on=made.benchmark)


def closer_looks(outcome: Outcome, made: Sequence[Table]) -> list[Section]:
    """Return the sections that the study's runs have something for."""
    looks = {
        "settings": ("Over the settings", pictures(one for t in made for one in _grids(outcome, t))),
        "masks": ("Capacity and reuse", "".join(_masks(outcome, t) for t in made)),
        "compression": ("Compression", _compression(made)),
    }
    return [Section(anchor, name, body) for anchor, (name, body) in looks.items() if body]


def _grids(outcome: Outcome, made: Table) -> Iterator[Draw]:
    """Draw every method that has a grid."""
    grids = [m for m in outcome.study.methods if m.family]
    for family in dict.fromkeys(m.family for m in grids):
        points = {m.label: m.point for m in grids if m.family == family}
        yield partial(_grid, family, points, made)


def _grid(family: str, points: Mapping[str, Mapping[str, Any]], made: Table) -> Picture:
    """Draw the first measure over a grid; over one setting, also as it is after other tasks."""
    of, on = f"the grid of {family} on {made.benchmark}", made.benchmark
    columns = {name: [point[name] for point in points.values()] for name in next(iter(points.values()))}
    names = [name for name, found in columns.items() if all(map(_is_number, found))]
    words = [n for n, found in columns.items() if n not in names and found != found[:1] * len(found)]
    if words or len(names) > 2:
        why = f"settings that are no numbers ({', '.join(words)})" if words else f"{len(names)} settings, more than two"
        raise HatrackError(f"There is no picture of {of}: it has {why}. Its figures are in the table.")
    ours = {row.label: row.findings for row in made.ours()}
    runs = {tuple(float(p[n]) for n in names): ours[label] for label, p in points.items() if label in ours}
    first = made.measures[0]
    alike = [m.text for m in made.measures if replace(m, text="", after=None) == replace(first, text="", after=None)]
    return study_plots.settings(runs, names, alike if len(names) == 1 else first.text, of=family, on=on)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _masks(outcome: Outcome, made: Table) -> str:
    """Draw capacity over training and reuse between tasks, for the first seed of each method with masks."""
    plain = {m.label for m in outcome.study.methods if not m.family}
    masked = {r.label: path for r in made.ours() if r.label in plain and (path := _first(r, tasks=2)) is not None}
    runs, broken = _readable(masked)
    draw: list[Draw] = [partial(study_plots.capacity_over_epochs, runs, on=made.benchmark)] if runs else []
    draw += [partial(_reuse, label, run, made.benchmark) for label, run in runs.items()]
    return pictures(draw) + broken


def _reuse(label: str, run: Run, benchmark: str) -> Picture:
    drawn = plots.reuse(run)
    return replace(
        drawn,
        label=f"{label} on {benchmark}: {drawn.label}",
        title=f"Weight reuse, {label} on {benchmark}",
        caption="Share of the row’s weights that the column’s task uses again, first seed.",
    )


def _compression(made: Sequence[Table]) -> str:
    """Draw accuracy against weights in use where a benchmark is a single task."""
    masked: dict[str, Run] = {}
    plain: dict[str, Run] = {}
    broken = ""
    for t in made:
        paths = {r.label: path for r in t.ours() if (path := _first(r, tasks=1)) is not None}
        names = {label: t.benchmark if len(paths) == 1 else f"{t.benchmark}, {label}" for label in paths}
        others = {r.label: path for r in t.ours() if r.label not in paths and (path := _alone(r)) is not None}
        runs, unread = _readable(paths)
        alone, unread_too = _readable(others if paths else {})
        broken += unread + unread_too
        masked |= {names[label]: run for label, run in runs.items()}
        for run in alone.values():
            if any(epoch.valid_accuracy is not None for epoch in run.epochs):
                plain |= dict.fromkeys(names.values(), run)
    return broken + (pictures([partial(study_plots.compression, masked, plain)]) if masked else "")


def _readable(paths: Mapping[str, Path]) -> tuple[dict[str, Run], str]:
    """Read runs by label; of each that cannot be read, say why on the page."""
    runs, left = {}, ""
    for label, path in paths.items():
        try:
            runs[label] = read(path)
        except HatrackError as error:
            left += left_out(str(error))
    return runs, left


def _first(r: Row, tasks: int) -> Path | None:
    """Return the first finished run with capacities; `tasks`: 1 for exactly one task, 2 for more."""
    for f in r.findings:
        if f.result is not None and f.result["capacity"]:
            several = len(f.result["tasks"]) > 1
            return f.run.path if several == (tasks > 1) else None
    return None


def _alone(r: Row) -> Path | None:
    """Return the first finished run of a single task."""
    done = (f for f in r.findings if f.result is not None and len(f.result["tasks"]) == 1)
    return next((f.run.path for f in done), None)
