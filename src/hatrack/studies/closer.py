"""Closer looks that some studies allow: over a grid of settings, into the masks, at compression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hatrack.errors import HatrackError
from hatrack.report.parts import Section, escape, figure, left_out, row
from hatrack.report.plots import reuse_matrix
from hatrack.report.read import Epoch, Run, read
from hatrack.studies import plots
from hatrack.studies.carry import Outcome
from hatrack.studies.file import Entry
from hatrack.studies.table import Row, Table
from hatrack.studies.words import title


def closer_looks(outcome: Outcome, made: Sequence[Table]) -> list[Section]:
    """Return the sections that the study's runs have something for."""
    looks = {
        "settings": ("Over the settings", [part for t in made for part in _grids(outcome, t)]),
        "masks": ("Capacity and reuse", [part for t in made for part in _masks(outcome, t)]),
        "compression": ("Compression", _compression(made)),
    }
    return [Section(anchor, name, row(*parts)) for anchor, (name, parts) in looks.items() if parts]


def _grids(outcome: Outcome, made: Table) -> list[str]:
    """Draw the first measure of every method that has a grid of one or two numbers."""
    measure = made.measures[0]
    entries = {m.label: m for m in outcome.study.methods if m.family}
    parts = []
    for family in dict.fromkeys(m.family for m in entries.values()):
        rows = [r for r in made.ours() if r.label in entries and entries[r.label].family == family]
        label = f"{measure.text} of {family} on {made.benchmark}"
        heading = f"{title(measure)} of {family} on {made.benchmark}"
        names = _numeric(entries[rows[0].label])
        found = {_place(entries[r.label], names): list(r.cells[measure.text].values.values()) for r in rows}
        found = {place: values for place, values in found.items() if values}
        if len(found) < 2 or not 1 <= len(names) <= 2 or len(found) < sum(bool(r.finished) for r in rows):
            continue
        if len(names) == 1:
            svg = plots.setting_line(label, names[0], {place[0]: values for place, values in found.items()})
            parts.append(figure(heading, svg, "A dot is a seed; the line goes through the means.", half=True))
        else:
            means = {(x, y): sum(values) / len(values) for (x, y), values in found.items()}
            parts.append(figure(heading, plots.setting_map(label, names, means), "Mean over seeds."))
    return parts


def _numeric(entry: Entry) -> list[str]:
    return [k for k, v in entry.point.items() if isinstance(v, int | float) and not isinstance(v, bool)]


def _place(entry: Entry, names: Sequence[str]) -> tuple[float, ...]:
    return tuple(float(entry.point[name]) for name in names)


def _masks(outcome: Outcome, made: Table) -> list[str]:
    """Draw capacity over training and reuse between tasks, for the first seed of each method with masks."""
    plain = {m.label for m in outcome.study.methods if not m.family}
    masked = {r.label: path for r in made.ours() if r.label in plain and (path := _first(r, tasks=2)) is not None}
    if not masked:
        return []
    runs, parts = _readable(masked)
    curves = {label: run.epochs for label, run in runs.items() if run.epochs}
    if curves:
        svg = plots.capacity_over_epochs(f"Capacity over training on {made.benchmark}", curves)
        caption = "Share of the weights in use, first seed; a dashed line is where the next task begins."
        parts.append(figure(f"Capacity over training on {made.benchmark}", svg, caption))
    for label, run in runs.items():
        if run.reuse is not None and np.isfinite(run.reuse).any():
            svg = reuse_matrix(run.names, run.reuse)
            svg = svg.replace('aria-label="', f'aria-label="{escape(label)} on {escape(made.benchmark)}: ', 1)
            caption = "Share of the row’s weights that the column’s task uses again, first seed."
            heading = f"Weight reuse, {label} on {made.benchmark}"
            parts.append(figure(heading, svg, caption, half=len(run.names) <= 8))
    return parts


def _compression(made: Sequence[Table]) -> list[str]:
    """Draw accuracy against weights in use where a benchmark is a single task."""
    dots: dict[str, list[Epoch]] = {}
    plain: dict[str, float] = {}
    left: list[str] = []
    for t in made:
        masked = {r.label: path for r in t.ours() if (path := _first(r, tasks=1)) is not None}
        names = {label: t.benchmark if len(masked) == 1 else f"{t.benchmark}, {label}" for label in masked}
        runs, broken = _readable(masked)
        dots |= {names[label]: run.epochs for label, run in runs.items()}
        alone = {r.label: path for r in t.ours() if r.label not in masked and (path := _alone(r)) is not None}
        others, unread = _readable(alone if masked else {})
        left += broken + unread
        for run in others.values():
            known = [e.valid_accuracy for e in run.epochs if e.valid_accuracy is not None]
            plain |= dict.fromkeys(names.values(), max(known)) if known else {}
    if not dots:
        return left
    caption = "A dot is an epoch, first seed; a triangle is the best of plain training, with all weights."
    return [*left, figure("Accuracy against weights in use", plots.compression("Compression", dots, plain), caption)]


def _readable(paths: Mapping[str, Path]) -> tuple[dict[str, Run], list[str]]:
    """Read runs by label; of each that cannot be read, say why on the page."""
    runs, left = {}, []
    for label, path in paths.items():
        try:
            runs[label] = read(path)
        except HatrackError as error:
            left.append(left_out(str(error)))
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
