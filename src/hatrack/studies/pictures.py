"""The pictures of a study's page: seed by seed, over the tasks, over settings, into the masks, compression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from hatrack.errors import HatrackError
from hatrack.report import plots, study_plots
from hatrack.report.builder import Section, left_out, pictures
from hatrack.report.picture import Picture
from hatrack.report.read import Run, read
from hatrack.studies.execute import Outcome
from hatrack.studies.file import Study
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
    """Draw accuracy and ρ after each task."""
    return pictures(one for t in made for one in _over_tasks(outcome.study, t))


def _over_tasks(study: Study, made: Table) -> Iterator[Draw]:
    grid = {m.label for m in study.methods if m.family}
    left = grid if len(study.methods) > LINES_AT_MOST else set()  # their map says more than a hundred lines
    shown = [row for row in made.ours() if row.label not in left]
    among = [row.label for row in shown]
    for measure, skipped in (("acc", ()), ("rho", ("joint", "random"))):
        runs = {r.label: r.findings for r in shown if not any(f.run.spec.method in skipped for f in r.findings)}
        yield partial(study_plots.over_tasks, runs, measure, on=made.benchmark, among=among)


def closer_looks(outcome: Outcome, made: Sequence[Table]) -> list[Section]:
    """Return the sections that the study's runs have something for."""
    looks = {
        "settings": ("Over the settings", pictures(one for t in made for one in _grids(outcome, t))),
        "masks": ("Capacity and reuse", "".join(_masks(outcome, t) for t in made)),
        "compression": ("Compression", _compression(made)),
    }
    return [Section(anchor, name, body) for anchor, (name, body) in looks.items() if body]


def _grids(outcome: Outcome, made: Table) -> Iterator[Draw]:
    """Draw the first measure of every method that has a grid of one or two numbers."""
    measure = made.measures[0]
    entries = {m.label: m for m in outcome.study.methods if m.family}
    for family in dict.fromkeys(m.family for m in entries.values()):
        rows = [r for r in made.ours() if r.label in entries and entries[r.label].family == family]
        first = entries[rows[0].label].point
        names = [k for k, v in first.items() if isinstance(v, int | float) and not isinstance(v, bool)]
        there = [r for r in rows if r.cells[measure.text].values]
        points = {tuple(float(entries[r.label].point[name]) for name in names): r.findings for r in there}
        if len(points) < 2 or not 1 <= len(names) <= 2 or len(points) < sum(bool(r.finished) for r in rows):
            continue
        yield partial(study_plots.settings, points, names, measure.text, of=family, on=made.benchmark)


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
