"""The pictures of a study: each function draws runs, given by method (and setting) as folders, results or findings.

What cannot be drawn says why, in one line: a HatrackError where there is nothing, else the caption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hatrack.errors import HatrackError
from hatrack.measure import Reading, Scale, interval, reading, scale
from hatrack.report import picture as fig
from hatrack.report.by_task import (
    Given,
    after_each,
    at_the_end,
    by_task,
    common_names,
    numbers,
    row_means,
    scale_of,
    taken,
    when_learned,
    without_ratio,
)
from hatrack.report.picture import FULL, HALF, Picture
from hatrack.report.read import Floats
from hatrack.report.source import Source, as_run
from hatrack.report.words import plain

SHADED = 3  # seeds from which on an interval is drawn over the tasks
NARROW = 12  # lines that a half-wide picture has room for
NAMED = 8  # tasks; up to that, each has its name below the picture
FIGURES_UP_TO = 20  # tasks; above that, cells are too small to hold a number


Band: TypeAlias = tuple[float, float, float]
"""A paper's figure, and the ends of the band in which another agrees with it."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


def seeds(
    runs: Mapping[str, Given], measure: str = "acc", *, on: str = "", paper: Mapping[str, Band] = NOTHING
) -> Picture:
    """Draw one measure: a dot a seed, a diamond with its 95 % interval, the paper's mean and band in orange."""
    wanted = _reading(measure, runs.values())
    values = {label: _values(found, wanted) for label, found in runs.items()}
    shown = {label: found for label, found in values.items() if found or label in paper}
    if not shown:
        raise HatrackError(f"No run has a value of {measure}{_on(on)} yet.")
    caption = "Dot: a seed. Diamond: the mean with its 95 % interval."
    caption += " Orange: the paper’s figure and band." if paper else ""
    without = [label for label in runs if label not in shown]
    caption += f" Without a value: {', '.join(without)}." if without else ""

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for y, (label, found) in enumerate(shown.items()):
            if label in paper:
                mean, low, high = paper[label]
                axes.fill_between([low, high], y - 0.32, y + 0.32, color=fig.NEW, alpha=0.22, linewidth=0)
                axes.plot([mean] * 2, [y - 0.32, y + 0.32], color=fig.NEW, linewidth=2)
            if found:
                mean, half = interval(found).mean, interval(found).half or 0.0
                axes.plot(found, [y] * len(found), "o", color=fig.REUSED, alpha=0.4, markersize=6, linestyle="")
                axes.plot([mean - half, mean + half], [y, y], color=fig.REUSED, linewidth=1.6)
                axes.plot([mean], [y], "D", color=fig.REUSED, markersize=7.5)
        axes.set_yticks(range(len(shown)), [fig.short(name, 24) for name in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        fig.bare(axes)
        locator = fig.UpToOne if wanted.measure.bounds[1] == 1 else MaxNLocator
        axes.xaxis.set_major_locator(locator(6, steps=[1, 2, 5, 10]))
        # All seeds and bands are shown; the interval of two seeds may well reach beyond.
        every = [v for found in [*shown.values(), *(band[1:] for band in paper.values())] for v in found]
        room = 0.12 * (max(every) - min(every)) or 0.01
        axes.set_xlim(min(every) - room, max(every) + room)

    title = f"{_capital(wanted.title)}{_on(on)}"
    return Picture(f"{measure}{_on(on)}", title, HALF, 0.7 + 0.3 * max(len(shown), 2), paint, caption)


def over_tasks(runs: Mapping[str, Given], measure: str = "acc", *, on: str = "", among: Sequence[str] = ()) -> Picture:
    """Draw a measure after each task: a line a method through its means, shaded where the 95 % interval is.

    `among`: all methods of the table, so that each has the same colour in every picture. The interval of fewer than
    SHADED seeds covers the whole picture: then each seed has a thin line of its own. Of ρ, the mean goes over the tasks
    that have one.
    """
    wanted = _reading(measure, runs.values())
    title, zero = _capital(wanted.title), wanted.measure.bounds[0] != 0
    needs = f" It is taken against runs of {', '.join(wanted.measure.against)}." if wanted.measure.needs else ""
    why = f"No run has a value of {wanted.title} after two tasks or more{_on(on)}.{needs}"
    if not scale_of(runs.values()).alike and wanted.measure.scored != "no":
        why = f"There is no {wanted.measure.title}{_on(on)}: its tasks are scored by several things."
    said = ["Over the tasks learned so far."] + ([f"{_capital(wanted.measure.meaning)}."] if zero else [])
    if wanted.text == "rho":
        said += without_ratio(runs.values())
    tables = {label: by_task(found, lambda *run: after_each(measure, *run)) for label, found in runs.items()}
    up_to_one = not zero or (wanted.measure.scored == "level" and wanted.measure.bounds[1] == 1)
    drawn = _lines(tables, runs, why, said, zero=zero, among=among, up_to_one=up_to_one)
    return replace(drawn, label=f"{title} over tasks{_on(on)}", title=f"{title}{_on(on)}")


def forward_transfer(
    runs: Mapping[str, Given], *, on: str = "", among: Sequence[str] = (), one: Sequence[Source] = ()
) -> Picture:
    """Draw what earlier tasks gave to each new one, a_tt − one_t: a line a method, as `over_tasks` draws it.

    `one`: runs of the method `one`, taken by their seed, for runs that come without references.
    """
    scale = scale_of(runs.values())
    if not scale.alike:
        raise HatrackError(f"There is no forward transfer to compare{_on(on)}: its tasks are scored by several things.")
    sign = 1 if scale.larger_is_better else -1
    alone: dict[int | None, Sequence[float]] = {
        run.result.spec.seed: np.diagonal(run.accuracy).tolist() for run in map(as_run, one)
    }

    def gained(result: Mapping[str, Any], given: Mapping[str, Any]) -> list[float]:
        against = given["one"] if "one" in given else alone.get(result.get("spec", {}).get("seed"), [])
        learned = [row[-1] for row in result["accuracy"]]
        return [np.nan if a is None else sign * (a - b) for a, b in zip(learned, against, strict=False)]

    why = f"No run has a forward transfer on two tasks or more{_on(on)}. It is taken against runs of one."
    said = [
        "Accuracy on a task just learned less that of a network which learned it alone; above 0, earlier tasks help."
    ]
    if scale != Scale():
        said = [
            scale.put(
                "Gain of accuracy on a task just learned over a network which learned it alone; above 0, "
                "earlier tasks help."
            )
        ]
    tables = {label: by_task(found, gained) for label, found in runs.items()}
    drawn = _lines(tables, runs, why, said, zero=True, among=among, across="task")
    title = f"Forward transfer to each task{_on(on)}"
    return replace(drawn, label=title, title=title)


def each_task(runs: Mapping[str, Given], *, on: str = "") -> Picture:
    """Draw the score on each task, just after learning it and at the end: a row a method, the mean over seeds."""
    known = scale_of(runs.values())
    if not known.alike:
        raise HatrackError(f"There is no score to draw of each task{_on(on)}: they are scored by several things.")
    learned, kept = (
        {label: row_means(by_task(found, take)) for label, found in runs.items()} for take in (when_learned, at_the_end)
    )
    shown = [label for label, values in learned.items() if len(values)]
    count = max((len(learned[label]) for label in shown), default=0)
    if count < 2:
        raise HatrackError(
            f"No run has learned two tasks or more{_on(on)}, so there is no {known.name} of each to draw."
        )
    panels = {
        title: np.array(
            [np.pad(values[label], (0, count - len(values[label])), constant_values=np.nan) for label in shown]
        )
        for title, values in (("just after learning it", learned), ("at the end", kept))
    }
    every = np.concatenate(list(panels.values()))
    least, most = float(np.nanmin(every)), float(np.nanmax(every))
    scale = Normalize(least, max(1.0 if known.shares else most, least + 1e-9))
    bands = fig.SHARE if known.larger_is_better else fig.SHARE.reversed()
    write = (lambda share: f"{100 * share:.1f}") if known.shares else plain
    names = common_names(runs.values(), count) if count <= NAMED else []

    def paint(figure: Figure) -> None:
        rows: Sequence[Axes] = figure.subplots(2, 1, sharex=True)
        for axes, (title, table) in zip(rows, panels.items(), strict=True):
            colours = fig.heat_map(axes, table, scale, bands)
            axes.set_title(title)
            axes.set_yticks(range(len(shown)), [fig.short(label, 24) for label in shown])
            fig.bare(axes)
            if count <= FIGURES_UP_TO:
                fig.cell_figures(axes, table, colours, write, 8 if count > 12 else 9)
            bar = fig.colour_bar(figure, axes, scale, bands)
            if known.shares:
                bar.yaxis.set_major_formatter(fig.Percent())
        fig.task_ticks(rows[-1], names or [""] * count, "x", named=bool(names))
        rows[-1].set_xlabel(f"{known.name} on task" + ", %" * known.shares)

    caption = "Mean over seeds. A colour that is paler below than above: the task was forgotten."
    without = [label for label in runs if label not in shown]
    caption += f" Without a value: {', '.join(without)}." if without else ""
    title = f"{known.put('Accuracy')} on each task{_on(on)}"
    return Picture(title, title, FULL, 1.5 + 0.56 * max(len(shown), 2), paint, caption)


def _lines(
    tables: Mapping[str, Floats],
    runs: Mapping[str, Given],
    why: str,
    said: Sequence[str],
    *,
    zero: bool,
    among: Sequence[str],
    across: str = "after learning task",
    up_to_one: bool = False,
) -> Picture:
    """Draw a line a method through the means of its table; `why` there is none where no table has two rows."""
    lines = {label: table for label, table in tables.items() if len(table) > 1}
    if not lines:
        raise HatrackError(why)
    places = list(among) if among else list(lines)
    colours = dict(zip(places, fig.order_colours(len(places)), strict=True))
    height = max(3.3, 0.8 + 0.2 * len(lines))
    every = np.concatenate([table[np.isfinite(table)] for table in lines.values()])

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        if zero:
            axes.axhline(0, color=fig.INK, linewidth=0.8)
        ends = []
        for name, table in lines.items():
            found = [interval(row[np.isfinite(row)].tolist()) if np.isfinite(row).any() else None for row in table]
            means = np.array([np.nan if f is None else f.mean for f in found])
            if table.shape[1] >= SHADED:
                halves = np.array([(f.half if f else None) or 0.0 for f in found])
                around = (means - halves, means + halves)
                axes.fill_between(np.arange(len(means)), *around, color=colours[name], alpha=0.15, linewidth=0)
            else:
                axes.plot(table, color=colours[name], alpha=0.4, linewidth=0.7)
            marked = len(means) <= 20 or not np.isfinite(means).all()
            axes.plot(means, color=colours[name], marker="o" if marked else "", markersize=3.5)
            ends.append((name, means, colours[name]))
        room = 0.06 * float(np.ptp(every)) + 0.005
        axes.set_ylim(float(every.min()) - room, float(every.max()) + room)
        fig.over_tasks_axes(axes, max(map(len, lines.values())), up_to_one=up_to_one)
        axes.set_xlabel(across)
        fig.end_labels(axes, ends, 0.17 / (height - 0.6))

    caption = " ".join([
        _drawn([table.shape[1] for table in lines.values()]), *said, *_lacking(tables, lines, runs)
    ])  # fmt: skip
    return Picture("", "", HALF if len(lines) <= NARROW else FULL, height, paint, caption)


def settings(
    runs: Mapping[tuple[float, ...], Given],
    names: Sequence[str],
    measure: str | Sequence[str] = "acc",
    *,
    of: str = "",
    on: str = "",
) -> Picture:
    """Draw measures over the values of one setting, or one over a grid of two, the first across and the second down.

    Several measures are one, taken after different tasks (acc1@2, acc1@3): a line each.
    """
    asked = [_reading(one, runs.values()) for one in ([measure] if isinstance(measure, str) else measure)]
    wanted = asked[0] if len(asked) == 1 else replace(asked[0], after=None)
    values = [{point: v for point, given in runs.items() if (v := _values(given, one))} for one in asked]
    there = [point for point in runs if any(point in line for line in values)]
    if len(there) < 2 or not 1 <= len(names) <= 2 or (len(names) == 2 and len(asked) > 1):
        raise HatrackError(
            f"{_capital(wanted.title)}{_on(on)} is drawn over one or two settings, with two values or more; several "
            f"measures over one."
        )
    where = f"{f' of {of}' if of else ''}{_on(on)}"
    label, title = f"{', '.join(one.text for one in asked)}{where}", f"{_capital(wanted.title)}{where}"
    lacking = [", ".join(f"{n} = {v:g}" for n, v in zip(names, p, strict=True)) for p in runs if p not in there]
    without = f" Without a value: {'; '.join(lacking)}." if lacking else ""
    if len(names) == 1:
        lines = {
            one.title.removeprefix(f"{wanted.title} "): {point[0]: found for point, found in line.items()}
            for one, line in zip(asked, values, strict=True)
        }
        caption = f"A dot is a seed; the line goes through the means.{without}"
        return Picture(label, title, HALF, 3.1, lambda figure: _paint_lines(figure, names[0], lines), caption)
    means = {point: float(np.mean(values[0].get(point, [np.nan]))) for point in runs}
    height = 1.0 + 0.42 * len({down for _, down in means})
    return Picture(
        label, title, FULL, height, lambda figure: _paint_map(figure, names, means), f"Mean over seeds.{without}"
    )


def capacity_over_epochs(runs: Mapping[str, Source], *, on: str = "") -> Picture:
    """Draw the share of weights in use after every epoch, dashed where a task begins."""
    read = {label: as_run(run, file="metrics.jsonl") for label, run in runs.items()}
    lines = {label: run.curve("capacity") for label, run in read.items() if run.epochs}
    if not lines:
        raise HatrackError(f"No run recorded an epoch{_on(on)}, so there is no capacity over training to draw.")
    colours = fig.order_colours(len(lines))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        longest = max(map(len, lines.values()))
        for (name, values), colour in zip(lines.items(), colours, strict=True):
            axes.plot(np.arange(1, len(values) + 1), values, color=colour)
            for place, (one, following) in enumerate(pairwise(read[name].epochs), start=1):
                if one.task != following.task:
                    axes.axvline(place + 0.5, color=colour, linewidth=0.6, linestyle=(0, (3, 3)), alpha=0.7)
        axes.set_xlim(0.5, longest + 0.5)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(fig.Percent())
        fig.bare(axes, "y")
        fig.over_epochs_axis(axes)
        fig.end_labels(axes, [(*line, c) for line, c in zip(lines.items(), colours, strict=True)], 0.06, first=1)

    title = f"Capacity over training{_on(on)}"
    caption = "Share of the weights in use, first seed; a dashed line is where the next task begins."
    without = [label for label in read if label not in lines]
    caption += f" Without an epoch: {', '.join(without)}." if without else ""
    return Picture(title, title, FULL, 3.6, paint, caption)


def compression(runs: Mapping[str, Source], plain: Mapping[str, Source] = NOTHING) -> Picture:
    """Draw validation accuracy against the share of weights in use, a dot an epoch; a triangle for `plain` training."""
    masked, unmasked = ({k: as_run(v, file="metrics.jsonl") for k, v in given.items()} for given in (runs, plain))
    if not masked:
        raise HatrackError("There is no run with capacities to draw accuracy against weights in use of.")
    scored = scale(task.model_dump() for run in masked.values() for task in run.result.tasks)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for (name, run), colour in zip(masked.items(), fig.order_colours(len(masked)), strict=True):
            axes.plot(
                run.curve("capacity"),
                run.curve("valid_accuracy"),
                "o",
                color=colour,
                markersize=4,
                alpha=0.7,
                label=fig.short(name),
            )
            best = unmasked[name].curve("valid_accuracy") if name in unmasked else np.array([])
            if np.isfinite(best).any():
                reached = np.nanmax(best) if scored.larger_is_better else np.nanmin(best)
                axes.plot([1.0], [reached], "^", color=to_rgb(colour), markersize=7, clip_on=False)
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("share of the weights in use")
        axes.set_ylabel(scored.put("validation accuracy"))
        fig.share_axis(axes.xaxis)
        if scored.shares:
            fig.share_axis(axes.yaxis)
        axes.tick_params(length=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)

    caption = "A dot is an epoch, first seed; a triangle is the best of plain training, with all weights."
    return Picture("Compression", scored.put("Accuracy against weights in use"), FULL, 4.2, paint, caption)


def _reading(measure: str, runs: Iterable[Given]) -> Reading:
    """Return the reading, in the words of what the runs' tasks are scored by."""
    found = (result for given in runs for result, _ in map(taken, given) if result is not None)
    return reading(measure).on([task for result in found for task in result.get("tasks") or ()])


def _on(where: str) -> str:
    return f" on {where}" if where else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _values(runs: Given, wanted: Reading) -> list[float]:
    return [
        v for result, given in map(taken, runs) if result is not None and (v := wanted.value(result, given)) is not None
    ]


def _lacking(tables: Mapping[str, Floats], lines: Mapping[str, Floats], runs: Mapping[str, Given]) -> list[str]:
    """Say what the lines lack: methods and runs without any value, and tasks for which seeds have none."""
    lacking = [f"{label} (none after two tasks or more)" for label in tables if label not in lines]
    for label, table in lines.items():
        if table.shape[1] < len(runs[label]):
            lacking.append(f"{label} ({len(runs[label]) - table.shape[1]} of {len(runs[label])} runs)")
        places = np.flatnonzero(~np.isfinite(table).all(axis=1)) + 1
        if len(places):
            missing = np.count_nonzero(~np.isfinite(table))
            lacking.append(f"{label} ({missing} of {table.size}, after task {numbers(places.tolist())})")
    return [f"Without a value: {'; '.join(lacking)}."] if lacking else []


def _drawn(counts: Sequence[int]) -> str:
    """Say what the lines over tasks stand for, which depends on how many seeds there are."""
    if max(counts) == 1:
        return "One seed."
    shaded = ["shaded: 95 % interval"] if max(counts) >= SHADED else []
    thin = ["thin: each seed"] if any(1 < count < SHADED for count in counts) else []
    return "; ".join(["Mean over seeds", *shaded, *thin]) + "."


def _paint_map(figure: Figure, names: Sequence[str], values: Mapping[tuple[float, ...], float]) -> None:
    across, down = (sorted({point[i] for point in values}) for i in (0, 1))
    table = np.full((len(down), len(across)), np.nan)
    for (x, y), value in values.items():
        table[down.index(y), across.index(x)] = value
    scale = Normalize(float(np.nanmin(table)), float(np.nanmax(table)) + 1e-9)
    axes = figure.add_subplot()
    colours = fig.heat_map(axes, table, scale)
    axes.set_xticks(range(len(across)), [f"{x:g}" for x in across])
    axes.set_yticks(range(len(down)), [f"{y:g}" for y in down])
    axes.tick_params(length=0)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    fig.cell_figures(axes, table, colours, "{:.3f}".format)
    fig.colour_bar(figure, axes, scale, fig.SHARE)


def _paint_lines(figure: Figure, name: str, lines: Mapping[str, Mapping[float, Sequence[float]]]) -> None:
    axes = figure.add_subplot()
    colours = fig.order_colours(len(lines)) if len(lines) > 1 else [to_rgb(fig.REUSED)]
    for (label, values), colour in zip(lines.items(), colours, strict=True):
        seen = sorted(values)
        for place in seen:
            axes.plot([place] * len(values[place]), values[place], "o", color=colour, alpha=0.6, markersize=5)
        axes.plot(seen, [float(np.mean(values[place])) for place in seen], color=colour, label=label)
    places = sorted(set().union(*lines.values()))
    if min(places) > 0 and max(places) / min(places) > 20:
        axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)
    fig.bare(axes)
    axes.set_xlabel(name)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=8.5)
