"""The pictures of a run: each function draws one of a run's folder, its result or a learner (see `source`).

What cannot be drawn says why, in one line: a HatrackError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hatrack.errors import HatrackError, unknown
from hatrack.measure.scale import UP_TO_ONE
from hatrack.report import picture as fig
from hatrack.report.picture import FULL, HALF, Picture
from hatrack.report.read import Epoch, Floats, Histogram, Run
from hatrack.report.source import Source, as_run
from hatrack.report.words import plain, whole

FIGURES_UP_TO = 20  # tasks; above that, cells are too small to hold a number
PAIRED_UP_TO = 8  # tasks; up to that, two pictures stand side by side
NAMED_UP_TO = 5  # tasks; up to that, each has its name above the picture
TILES_AT_MOST = 10  # tasks of which the masks on weights are drawn
TILES_ACROSS = 5
TILE = (320, 320)  # pixels at least
PANELS = 3  # side by side
COLUMNS_AT_MOST = 1024  # of a mask picture; more units share columns


def matrix(result: Source) -> Picture:
    """Draw the test score on each task after each task, from guessing (pale) to the best (dark)."""
    run = _measured(result)
    scale = run.scale
    label, columns = scale.put("Accuracy matrix"), scale.put("accuracy on task") + ", %" * scale.shares
    caption = (
        "Each row is the network after one more task, each column a task it is tested on. "
        "Read down a column: a colour that stays is a task that is kept, one that fades a task forgotten. "
    )
    if not scale.shares:
        caption += (
            "Of every task, the palest colour is guessing, or worse, and the darkest the best there can be; where "
            "these are not known, its own worst and best score."
        )
        if not scale.alike:
            caption += f" Scored by {', '.join(dict.fromkeys(task.score for task in run.result.tasks))}."
        return _matrix(label, run, graded(run), None, "after learning", columns, caption, run.accuracy)
    guesses = [1 / t.classes if t.guess is None else t.guess for t in run.result.tasks if t.classes is not None]
    low = min([*guesses, *run.accuracy[np.isfinite(run.accuracy)].tolist()])
    low = low if low < 1 else 0.0  # tasks of one class: what guessing always gets right is right all the same
    caption += scale.put("The palest colour is guessing, or the lowest accuracy if that is lower.")
    return _matrix(label, run, run.accuracy, low, "after learning", columns, caption)


def graded(run: Run) -> Floats:
    """Return how good every score is, from guessing (0) to the best (1), whatever the tasks are scored by."""
    grades = np.full_like(run.accuracy, np.nan)
    for i, task in enumerate(run.result.tasks):
        sign = 1.0 if task.larger_is_better else -1.0
        column = sign * run.accuracy[:, i]
        seen = column[np.isfinite(column)]
        if not len(seen):
            continue
        low = float(seen.min()) if task.guess is None else sign * task.guess
        high = 1.0 if task.score in UP_TO_ONE else float(seen.max())
        grades[:, i] = (
            np.clip((column - low) / (high - low), 0, 1) if high > low else np.where(np.isfinite(column), 1, np.nan)
        )
    return grades


def reuse(result: Source) -> Picture:
    """Draw the share of the weights of each task that a later task uses again."""
    run = as_run(result)
    if run.reuse is None:
        method = run.result.spec.method
        raise HatrackError(f"{method} does not say which weights a task uses, so it has no reuse to show.")
    if not np.isfinite(run.reuse).any():
        raise HatrackError("Reuse is counted between two tasks; this run has no pair of them.")
    caption = (
        "Row: the task whose weights they are. Column: a later task. "
        "The figure is the share of the row’s weights that the column’s task uses again."
    )
    label = "Weight reuse between tasks"
    return _matrix(label, run, run.reuse, 0.0, "weights of", "used again by task, %", caption)


def found(result: Source) -> Picture:
    """Draw which task the samples of each task are taken for when nobody names it."""
    run = as_run(result)
    if run.result.free is None:
        raise HatrackError(
            "Which task a sample belongs to was not asked in this run: a task has no statistics for it (see "
            "docs/which-task.md), or no test samples were at hand."
        )
    caption = (
        "Row: the task whose test samples they are. Column: the task they are taken for when nobody names it. "
        "What is off the diagonal is answered as another task."
    )
    table = np.array(run.result.free.found, np.float64)
    return _matrix("Tasks found", run, table, 0.0, "samples of task", "taken for task, %", caption)


def accuracy(result: Source) -> Picture:
    """Draw the score of each task from when it was learned, and the average over the tasks so far where it has one."""
    run = _measured(result)
    if len(run.names) == 1:
        raise HatrackError("One task was learned, so there is no sequence to draw yet.")
    lines = {f"{i + 1} · {name}": run.accuracy[:, i] for i, name in enumerate(run.names)}
    scale, known = run.scale, np.isfinite(run.accuracy)
    if not scale.alike and any(task.score not in UP_TO_ONE for task in run.result.tasks):
        raise HatrackError("The tasks are scored in several units, which share no axis: see the matrix.")
    counts = known.sum(axis=1)
    average = np.where(known, run.accuracy, 0.0).sum(axis=1) / np.where(counts > 0, counts, np.nan)
    caption = "Each line starts when its task is learned; a flat line is a task that is kept. "
    if scale.alike:
        caption += "The dashed line is the average over the tasks learned so far."
    titles = (scale.put("Accuracy of each task over the sequence"), "Each task over the sequence", caption.strip())
    least, most = float(np.nanmin(run.accuracy)), float(np.nanmax(run.accuracy))
    limits = (max(0.0, np.floor((least - 0.01) * 20) / 20), 1.0)
    if not scale.shares:
        limits = (least - 0.05 * (most - least or 1.0), 1.0 if scale.bounds[1] == 1 or not scale.alike else most)
    whole = average if scale.alike else np.full_like(average, np.nan)
    return _lines_over_tasks(titles, "task", lines, whole, "average", limits, percents=scale.shares)


def capacity(result: Source) -> Picture:
    """Draw the share of weights in use after each task, layer by layer and in all."""
    run = as_run(result)
    taken = run.result.capacity
    if not taken:
        method = run.result.spec.method
        raise HatrackError(f"{method} sets no weights aside for a task, so it has no capacity to show.")
    lines = {name: np.array([after.layers.get(name, math.nan) for after in taken]) for name in taken[0].layers}
    caption = "Share of each layer’s weights that the tasks so far use; at 100 % a layer has no room left."
    total = np.array([after.total for after in taken])
    titles = ("Capacity used", "Capacity used, layer by layer", caption)
    return _lines_over_tasks(titles, "layer", lines, total, "all layers", (0.0, 1.0))


def ratio(result: Source) -> Picture:
    """Draw the forgetting ratio ρ^{≤t} after each task: 0 is joint training, −1 guessing."""
    run = as_run(result)
    each = run.result.metrics.get("rho_each")
    if not each:
        raise HatrackError("ρ over the sequence needs runs of joint and random: hatrack report RUN --against RUN.")
    values = np.asarray(each, np.float64)
    gaps = np.flatnonzero(~np.isfinite(values)) + 1
    there = "joint training is no better than guessing on a task"
    if len(gaps) == len(values):
        raise HatrackError(f"ρ has no value after any task: {there}.")
    caption = (
        "0: as good as a network trained jointly on all tasks so far. −1: no better than guessing. "
        "Taken against the joint and the random run of the same seed."
    )
    if len(gaps):
        caption += f" No value after task {', '.join(map(str, gaps))}: {there}."

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(0, color=fig.INK, linewidth=0.8)
        marker = "o" if len(values) <= FIGURES_UP_TO or len(gaps) else ""
        axes.plot(values, color=fig.order_colours(1)[0], marker=marker, markersize=4)
        axes.set_ylim(min(-0.1, float(np.nanmin(values)) - 0.05), max(0.05, float(np.nanmax(values)) + 0.05))
        fig.over_tasks_axes(axes, len(values))

    label = "Forgetting ratio over the sequence"
    return Picture(label, "Forgetting ratio ρ over the sequence", HALF, 3.1, paint, caption)


def _measured(result: Source) -> Run:
    run = as_run(result)
    if not np.isfinite(run.accuracy).any():
        raise HatrackError(run.scale.put("No task of this run has test samples, so no accuracy was measured."))
    return run


def _matrix(
    label: str,
    run: Run,
    table: Floats,
    low: float | None,
    rows: str,
    columns: str,
    caption: str,
    figures: Floats | None = None,
) -> Picture:
    """Draw shares from `low` to 1 by colour; or, without it, grades from 0 to 1, with `figures` in their cells."""
    names, count = run.names, len(run.names)
    scale = Normalize(low or 0.0, 1.0)
    shown, write = (table, _percents) if figures is None else (figures, plain)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        colours = fig.heat_map(axes, table, scale)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        fig.task_ticks(axes, names, "y", named=True)
        fig.task_ticks(axes, names, "x", named=False)
        axes.set_ylabel(rows)
        axes.set_xlabel(columns)
        if count <= FIGURES_UP_TO:
            for edge in np.arange(count + 1) - 0.5:
                axes.axhline(edge, color="white", linewidth=1.2)
                axes.axvline(edge, color="white", linewidth=1.2)
            fig.cell_figures(axes, shown, colours, write, 8 if count > 12 else 9)
        bar = fig.colour_bar(figure, axes, scale, fig.SHARE)
        if low is None:
            bar.set_yticks([0, 1], ["guessing", "best"])
        else:
            bar.yaxis.set_major_formatter(fig.Percent())

    if count <= PAIRED_UP_TO:
        return Picture(label, label, HALF, 1.0 + 0.45 * max(count, 2), paint, caption)
    return Picture(label, label, FULL, 0.8 + 0.29 * count if count <= FIGURES_UP_TO else 7.2, paint, caption)


def _percents(share: float) -> str:
    return "100" if share == 1 else f"{100 * share:.1f}"


def _lines_over_tasks(
    titles: tuple[str, str, str],
    noun: str,
    lines: Mapping[str, Floats],
    whole: Floats,
    whole_name: str,
    limits: tuple[float, float],
    percents: bool = True,
) -> Picture:
    """Draw a line a name over the tasks, and a dashed one for the whole, each named at its right end."""
    bottom, top = limits
    label, title, caption = titles
    count = len(whole)
    few = len(lines) <= FIGURES_UP_TO
    width = HALF if count <= PAIRED_UP_TO and few else FULL
    height = max(3.1, 0.6 + 0.2 * (len(lines) + 1)) if few else 4.2
    colours = fig.order_colours(len(lines))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        marker = "o" if count <= FIGURES_UP_TO else ""
        for values, colour in zip(lines.values(), colours, strict=True):
            axes.plot(values, color=colour, marker=marker, markersize=3.5)
        axes.plot(whole, color=fig.INK, linewidth=2.4, linestyle=(0, (4, 2)), marker=marker, markersize=3)
        axes.set_ylim(bottom, top + 0.02 * (top - bottom or 1.0))
        fig.over_tasks_axes(axes, count, percents=percents)
        if few:
            named = [(*line, colour) for line, colour in zip(lines.items(), colours, strict=True)]
            fig.end_labels(axes, [*named, (whole_name, whole, to_rgb(fig.INK))], 0.17 / (height - 0.6))
        else:
            bar = fig.colour_bar(figure, axes, Normalize(1, len(lines)), fig.ORDER)
            bar.set_ylabel(f"{noun}, first to last")

    return Picture(label, title, width, height, paint, caption)


def masks(result: Source, site: str | None = None) -> Picture:
    """Draw the gates of one site, or of all below each other: tasks down and units across.

    Units stand in the order of the task that first used them; a gate above 1/2 counts as on. Beyond
    `COLUMNS_AT_MOST` units, a column shows the mean colour of its neighbours.
    """
    run = as_run(result, file="masks.safetensors")
    if not run.masks:
        raise HatrackError(f"{run.result.spec.method} has no unit masks, so there is no picture of them.")
    if site is not None and site not in run.masks:
        raise unknown("site", site, run.masks)
    shown = {site: run.masks[site]} if site is not None else run.masks
    tasks = len(run.names)

    def paint(figure: Figure) -> None:
        rows = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
        for axes, (name, gates) in zip(rows, shown.items(), strict=True):
            _paint_gates(axes, run.names, gates)
            axes.set_title("" if len(shown) == 1 else name)

    used = sum(int((gates > 0.5).any(axis=0).sum()) for gates in shown.values())
    about = f"{whole(sum(gates.shape[1] for gates in shown.values()))} units, {whole(used)} used by any task"
    height = 0.75 + (0.21 * tasks if tasks <= FIGURES_UP_TO else 4.6)
    label = "Unit masks" if site is None else f"Unit masks of {site}"
    return Picture(label, site or label, FULL, height * len(shown), paint, about=about)


def _paint_gates(axes: Axes, names: Sequence[str], gates: Floats) -> None:
    on = gates > 0.5
    tasks, units = on.shape
    before = np.vstack([np.zeros((1, units), bool), np.logical_or.accumulate(on, axis=0)[:-1]])
    new, reused, held = on & ~before, on & before, ~on & before
    first = np.where(on.any(axis=0), on.argmax(axis=0), tasks)
    order = np.lexsort((-on.sum(axis=0), first))

    colours = np.empty((tasks, units, 3))
    colours[:] = to_rgb(fig.FREE)
    for where, colour in ((new, fig.NEW), (reused, fig.REUSED), (held, fig.HELD)):
        colours[where] = to_rgb(colour)
    colours = colours[:, order]
    share = -(-units // COLUMNS_AT_MOST)
    if share > 1:
        starts = np.arange(0, units, share)
        sizes = np.diff([*starts, units])
        colours = np.add.reduceat(colours, starts, axis=1) / sizes[:, None]

    fig.image(axes, colours, (0, units, tasks - 0.5, -0.5))
    fig.task_ticks(axes, names, "y", named=True)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    axes.tick_params(axis="x", length=2)
    if tasks <= FIGURES_UP_TO:
        for edge in np.arange(1, tasks) - 0.5:
            axes.axhline(edge, color="white", linewidth=1.5)
        _row_counts(axes, "new", new.sum(axis=1), 1.055, fig.NEW)
        _row_counts(axes, "reused", reused.sum(axis=1), 1.12, fig.REUSED)


def _row_counts(axes: Axes, title: str, counts: Sequence[int], place: float, colour: str) -> None:
    across = axes.get_yaxis_transform()
    axes.text(place, -0.75, title, transform=across, ha="right", va="bottom", color=colour, fontsize=8.5)
    for row, count in enumerate(counts):
        axes.text(place, row, f"{count}", transform=across, ha="right", va="center_baseline", fontsize=8.5)


def weights(result: Source, parameter: str | None = None) -> Picture:
    """Draw which entries of a parameter, or of all below each other, each task uses: rows are outputs.

    Beyond TILES_AT_MOST tasks the first and the last are drawn.
    """
    run = as_run(result, file="masks.safetensors")
    if not run.weights:
        raise HatrackError(f"{run.result.spec.method} has no masks on single weights, so there is no picture of them.")
    if parameter is not None and parameter not in run.weights:
        raise unknown("parameter", parameter, run.weights)
    shown = {parameter: run.weights[parameter]} if parameter is not None else run.weights
    count = len(next(iter(shown.values())))
    titles = [f"{i + 1} · {fig.short(name, 14)}" for i, name in enumerate(run.names)]
    titles = titles if count == len(titles) else ["all tasks"]
    half = TILES_AT_MOST // 2
    drawn = list(range(count)) if count <= TILES_AT_MOST else [*range(half), *range(count - half, count)]
    across = min(len(drawn), TILES_ACROSS)
    down = -(-len(drawn) // across)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(down * len(shown), across, squeeze=False)
        for first, (name, fields) in zip(range(0, down * len(shown), down), shown.items(), strict=True):
            for place, axes in enumerate(grid[first : first + down].ravel()):
                axes.set_axis_off()
                if place < len(drawn):
                    fig.image(axes, fig.SHARE(fields[drawn[place]]), (0, 1, 0, 1), TILE)
                    axes.set_title(titles[drawn[place]], fontsize=8.5)
            if len(shown) > 1:
                grid[first, 0].set_title(f"{name}\n{titles[drawn[0]]}", fontsize=8.5)

    caption = (
        "Dark: used, pale: not. A row is an output, a column an input (kernels one after another); where there are "
        "more than fit, a field is the share of neighbouring entries."
    )
    caption += " The method keeps what all tasks hold back together." if count == 1 < len(run.names) else ""
    caption += f" The first and the last {half} of {count} tasks." if len(drawn) < count else ""
    width = HALF if across <= TILES_ACROSS // 2 else FULL
    label = "Weight masks" if parameter is None else f"Weight masks of {parameter}"
    return Picture(label, parameter or label, width, 0.1 + 1.75 * down * len(shown), paint, caption)


def significance(result: Source) -> Picture:
    """Draw how significant each layer's entries are, by the Fisher information of each task: log-scale histograms."""
    run = as_run(result)
    recorded = run.result.histograms
    if not recorded:
        raise HatrackError(f"{run.result.spec.method} recorded no significance of entries, so there are no histograms.")
    tasks = [(task, found) for task, found in enumerate(recorded) if found]
    layers = list(tasks[0][1])
    colours = fig.order_colours(len(tasks))
    rows = -(-len(layers) // PANELS)
    few = len(tasks) <= NAMED_UP_TO

    def paint(figure: Figure) -> None:
        grid = figure.subplots(rows, min(len(layers), PANELS), sharex=True, squeeze=False).ravel()
        for axes, layer in zip(grid, layers, strict=False):
            for (task, found), colour in zip(tasks, colours, strict=True):
                if layer in found:
                    _stairs(axes, found[layer], f"{task + 1} · {fig.short(run.names[task])}", colour)
            axes.set_title(layer)
            axes.yaxis.set_major_formatter(fig.Percent())
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.xaxis.set_major_formatter(lambda exponent, _: f"1e{exponent:.0f}".replace("-", "−"))
            axes.tick_params(labelbottom=True)
            fig.bare(axes)
        for axes in grid[len(layers) :]:
            axes.set_visible(False)
        if few:
            text: dict[str, Any] = {"frameon": False, "fontsize": 8.5}
            figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(tasks), **text)
        else:
            fig.colour_bar(figure, grid[-1], Normalize(1, len(recorded)), fig.ORDER).set_ylabel("task, first to last")

    last = tasks[-1][1]
    none = {layer: found.zeros / max(found.zeros + sum(found.counts), 1) for layer, found in last.items()}
    zeros = "; ".join(f"{layer} {_percents(share)} %" for layer, share in none.items() if share >= 0.0005)
    caption = (
        "Across: the Fisher information of what is frozen or left free, entries or neurons, on a log scale. Up: their "
        "share of the layer in a step of the line, a quarter of a decade."
    )
    caption += f" Exactly 0, and not drawn, after the last task: {zeros}." if zeros else ""
    label = "Significance, layer by layer"
    return Picture(label, label, FULL, 0.5 + 2.2 * rows, paint, caption)


def _stairs(axes: Axes, found: Histogram, label: str, colour: fig.Colour) -> None:
    whole = max(sum(found.counts) + found.zeros, 1)
    edges = found.start + found.step * np.arange(len(found.counts) + 1)
    axes.stairs(np.array(found.counts) / whole, edges, color=colour, label=label, linewidth=1.4)


def training(result: Source) -> Picture:
    """Draw loss, validation score, capacity and learning rate over all epochs, one band a task.

    A panel without any value is left out.
    """
    run = as_run(result, file="metrics.jsonl")
    epochs, validated = run.epochs, run.scale.put("validation accuracy")
    curves = {
        "loss": {"training": run.curve("train_loss"), "validation": run.curve("valid_loss")},
        validated: {"": run.curve("valid_accuracy")},
        "capacity used": {"": run.curve("capacity")},
        "learning rate": {"": run.curve("lr")},
    }
    panels = {
        title: {name: values for name, values in lines.items() if np.isfinite(values).any()}
        for title, lines in curves.items()
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        raise HatrackError(f"{run.result.spec.method} recorded no epoch, so there are no training curves.")
    heights = [1.9 if title == "loss" else 1.5 if title == validated else 0.95 for title in panels]
    shares = {"capacity used", *([validated] if run.scale.shares else [])}

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, lines) in zip(grid, panels.items(), strict=True):
            _task_bands(axes, epochs)
            _curves(axes, title, lines, epochs, share=title in shares)
        _band_names(grid[0], run.names, epochs)
        if len(panels.get("loss", {})) > 1:
            handles, labels = grid[0].get_legend_handles_labels()
            text = {"frameon": False, "fontsize": 8.5}
            figure.legend(handles, labels, loc="outside upper right", ncols=2, borderaxespad=0, **text)
        fig.over_epochs_axis(grid[-1])

    caption = (
        "Every epoch of the run from left to right; the bands are the tasks. "
        "The weights kept for a task may be those of its best epoch, not of its last."
    )
    return Picture("Training curves", "Training curves", FULL, 0.8 + 1.15 * sum(heights), paint, caption)


def _spans(epochs: Sequence[Epoch]) -> dict[int, tuple[int, int]]:
    """Return the first and last place of each task among all epochs, counted from 1."""
    spans: dict[int, tuple[int, int]] = {}
    for place, epoch in enumerate(epochs, start=1):
        spans[epoch.task] = (spans.get(epoch.task, (place, place))[0], place)
    return spans


def _task_bands(axes: Axes, epochs: Sequence[Epoch]) -> None:
    for task, (first, last) in _spans(epochs).items():
        if task % 2 == 0:
            axes.axvspan(first - 0.5, last + 0.5, color=fig.BAND, linewidth=0, zorder=0)
    axes.set_xlim(0.5, len(epochs) + 0.5)


def _band_names(axes: Axes, names: Sequence[str], epochs: Sequence[Epoch]) -> None:
    """Write above each band the task's name, or its number where the names do not fit."""
    spans = _spans(epochs)
    letter = len(epochs) / 130  # epochs as wide as a letter: about 130 letters fit across
    fits = all(len(fig.short(names[t])) * letter < last - first + 1 for t, (first, last) in spans.items())
    step = 1 if len(spans) <= 40 else 5
    for task, (first, last) in spans.items():
        if fits or task == 0 or (task + 1) % step == 0:
            text = fig.short(names[task]) if fits else str(task + 1)
            across = axes.get_xaxis_transform()
            axes.text((first + last) / 2, 1.03, text, transform=across, ha="center", fontsize=8.5)


def _curves(axes: Axes, title: str, lines: Mapping[str, Floats], epochs: Sequence[Epoch], share: bool) -> None:
    colours = {"training": fig.MUTED, "validation": fig.NEW, "": fig.REUSED}
    for name, values in lines.items():
        for first, last in _spans(epochs).values():
            part = slice(first - 1, last)
            axes.plot(
                np.arange(first, last + 1),
                values[part],
                color=colours[name],
                linewidth=1.2,
                marker="o" if first == last else "",
                markersize=2.5,
                label=name if first == 1 and name else "_",
            )
    axes.set_ylabel(title.replace(" ", "\n", 1))
    fig.bare(axes)
    every = np.concatenate(list(lines.values()))
    if title == "learning rate" and np.nanmin(every) > 0:
        axes.set_yscale("log")
        ends = sorted({float(np.nanmin(every)), float(np.nanmax(every))})
        axes.set_yticks(ends, [f"{rate:.2g}" for rate in ends])
        axes.set_yticks([], minor=True)
    elif share:
        fig.share_axis(axes.yaxis)
