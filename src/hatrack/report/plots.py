"""The pictures of a report: each function takes plain data and returns one <svg> element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hatrack.report import figure as fig
from hatrack.report.read import Epoch, Floats

FIGURES_UP_TO = 20  # tasks; above that, cells are too small to hold a number
PAIRED_UP_TO = 8  # tasks; up to that, two pictures stand side by side
COLUMNS_AT_MOST = 1024  # of a mask picture; more units share columns


def accuracy_matrix(names: Sequence[str], accuracy: Floats, chance: float) -> str:
    """Draw accuracy[t, i], on task i after task t, from `chance` (pale) to 1 (dark)."""
    low = min([chance, *accuracy[np.isfinite(accuracy)].tolist()])
    low = low if low < 1 else 0.0  # tasks of one class: what guessing always gets right is right all the same
    return _matrix("Accuracy matrix", names, accuracy, low, "after learning", "accuracy on task, %")


def reuse_matrix(names: Sequence[str], reuse: Floats) -> str:
    """Draw reuse[i, j]: the share of the weights of task i that task j uses again."""
    return _matrix("Weight reuse between tasks", names, reuse, 0.0, "weights of", "used again by task, %")


def _matrix(label: str, names: Sequence[str], table: Floats, low: float, rows: str, columns: str) -> str:
    count = len(names)
    scale = Normalize(low, 1.0)
    colours = fig.SHARE(scale(table))
    colours[~np.isfinite(table)] = 0.0  # transparent

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.imshow(
            fig.blocks(colours, (1000, 1000)),
            extent=(-0.5, count - 0.5, count - 0.5, -0.5),
            aspect="auto",
            interpolation="none",
        )
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        fig.task_ticks(axes, names, "y", named=True)
        fig.task_ticks(axes, names, "x", named=False)
        axes.set_ylabel(rows)
        axes.set_xlabel(columns)
        if count <= FIGURES_UP_TO:
            _cell_figures(axes, table, colours)
        bar = fig.colour_bar(figure, axes, scale, fig.SHARE)
        bar.yaxis.set_major_formatter(fig.Percent())

    if count <= PAIRED_UP_TO:
        return fig.draw(label, fig.HALF, 1.0 + 0.45 * max(count, 2), paint)
    return fig.draw(label, fig.FULL, 0.8 + 0.29 * count if count <= FIGURES_UP_TO else 7.2, paint)


def _cell_figures(axes: Axes, table: Floats, colours: Floats) -> None:
    count = len(table)
    for edge in np.arange(count + 1) - 0.5:
        axes.axhline(edge, color="white", linewidth=1.2)
        axes.axvline(edge, color="white", linewidth=1.2)
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            colour = fig.readable_on(colours[i, j])
            text = "100" if value == 1 else f"{100 * value:.1f}"
            axes.text(j, i, text, ha="center", va="center_baseline", color=colour, fontsize=8 if count > 12 else 9)


def accuracy_over_tasks(names: Sequence[str], accuracy: Floats) -> str:
    """Draw the accuracy of each task from when it was learned, and the average over the tasks so far."""
    lines = {f"{i + 1} · {name}": accuracy[:, i] for i, name in enumerate(names)}
    known = np.isfinite(accuracy)
    counts = known.sum(axis=1)
    average = np.where(known, accuracy, 0.0).sum(axis=1) / np.where(counts > 0, counts, np.nan)
    bottom = max(0.0, np.floor((np.nanmin(accuracy) - 0.01) * 20) / 20)
    return _lines_over_tasks("Accuracy of each task over the sequence", "task", lines, average, "average", bottom)


def capacity_over_tasks(total: Sequence[float], layers: Mapping[str, Sequence[float]]) -> str:
    """Draw the share of weights in use after each task, layer by layer and in all."""
    lines = {name: np.asarray(values, np.float64) for name, values in layers.items()}
    return _lines_over_tasks("Capacity used", "layer", lines, np.asarray(total, np.float64), "all layers", 0.0)


def ratio_over_tasks(rho: Sequence[float | None]) -> str:
    """Draw the forgetting ratio ρ^{≤t} after each task: 0 is joint training, −1 guessing."""
    values = np.asarray(rho, np.float64)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(0, color=fig.INK, linewidth=0.8)
        axes.plot(
            values, color=fig.order_colours(1)[0], marker="o" if len(values) <= FIGURES_UP_TO else "", markersize=4
        )
        axes.set_ylim(min(-0.1, float(np.nanmin(values)) - 0.05), max(0.05, float(np.nanmax(values)) + 0.05))
        axes.set_xlim(-0.3, max(len(values) - 0.7, 0.3))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        fig.task_ticks(axes, [""] * len(values), "x", named=False)
        axes.set_xlabel("after learning task")

    return fig.draw("Forgetting ratio over the sequence", fig.HALF, 3.1, paint)


def _lines_over_tasks(
    label: str, noun: str, lines: Mapping[str, Floats], whole: Floats, whole_name: str, bottom: float
) -> str:
    """Draw a line a name over the tasks, and a dashed one for the whole, each named at its right end."""
    count = len(whole)
    few = len(lines) <= FIGURES_UP_TO
    width = fig.HALF if count <= PAIRED_UP_TO and few else fig.FULL
    height = max(3.1, 0.6 + 0.2 * (len(lines) + 1)) if few else 4.2
    colours = fig.order_colours(len(lines))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        marker = "o" if count <= FIGURES_UP_TO else ""
        for values, colour in zip(lines.values(), colours, strict=True):
            axes.plot(values, color=colour, marker=marker, markersize=3.5)
        axes.plot(whole, color=fig.INK, linewidth=2.4, linestyle=(0, (4, 2)), marker=marker, markersize=3)
        axes.set_ylim(bottom, 1 + 0.02 * (1 - bottom))
        axes.set_xlim(-0.3, max(count - 0.7, 0.3))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(fig.Percent())
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        fig.task_ticks(axes, [""] * count, "x", named=False)
        axes.set_xlabel("after learning task")
        if few:
            ends = [(name, values[-1], c) for (name, values), c in zip(lines.items(), colours, strict=True)]
            ends.append((whole_name, whole[-1], to_rgb(fig.INK)))
            end_labels(axes, count - 1, ends, 0.17 / (height - 0.6))
        else:
            bar = fig.colour_bar(figure, axes, Normalize(1, len(lines)), fig.ORDER)
            bar.set_ylabel(f"{noun}, first to last")

    return fig.draw(label, width, height, paint)


def end_labels(axes: Axes, x: int, ends: Sequence[tuple[str, float, fig.Colour]], gap: float) -> None:
    """Write each line's name beside its last value at x, moved apart where names would overlap."""
    bottom, top = axes.get_ylim()
    ends = [end for end in ends if np.isfinite(end[1])]
    heights = fig.spread([(value - bottom) / (top - bottom) for _, value, _ in ends], gap)
    for (name, value, colour), height in zip(ends, heights, strict=True):
        leader = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 0.5,
            "relpos": (0, 0.5),
            "shrinkA": 2,
            "shrinkB": 4,
        }
        axes.annotate(
            fig.short(name, 24),
            xy=(x, value),
            xytext=(1.05, height),
            textcoords="axes fraction",
            color=tuple(0.85 * part for part in colour),
            va="center",
            fontsize=8.5,
            arrowprops=leader,
        )


def unit_masks(site: str, names: Sequence[str], gates: Floats) -> str:
    """Draw the gates of one site, tasks down and units across.

    Units stand in the order of the task that first used them; a gate above 1/2 counts as on. Beyond
    `COLUMNS_AT_MOST` units, a column shows the mean colour of its neighbours.
    """
    on = gates > 0.5
    tasks, units = on.shape
    before = np.vstack([np.zeros((1, units), bool), np.logical_or.accumulate(on, axis=0)[:-1]])
    new, reused, held = on & ~before, on & before, ~on & before
    first = np.where(on.any(axis=0), on.argmax(axis=0), tasks)
    order = np.lexsort((-on.sum(axis=0), first))

    picture = np.empty((tasks, units, 3))
    picture[:] = to_rgb(fig.FREE)
    for where, colour in ((new, fig.NEW), (reused, fig.REUSED), (held, fig.HELD)):
        picture[where] = to_rgb(colour)
    picture = picture[:, order]
    share = -(-units // COLUMNS_AT_MOST)
    if share > 1:
        starts = np.arange(0, units, share)
        sizes = np.diff([*starts, units])
        picture = np.add.reduceat(picture, starts, axis=1) / sizes[:, None]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.imshow(fig.blocks(picture), extent=(0, units, tasks - 0.5, -0.5), aspect="auto", interpolation="none")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        fig.task_ticks(axes, names, "y", named=True)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
        axes.tick_params(axis="x", length=2)
        if tasks <= FIGURES_UP_TO:
            for edge in np.arange(1, tasks) - 0.5:
                axes.axhline(edge, color="white", linewidth=1.5)
            _row_counts(axes, "new", new.sum(axis=1), 1.055, fig.NEW)
            _row_counts(axes, "reused", reused.sum(axis=1), 1.12, fig.REUSED)

    height = 0.75 + (0.21 * tasks if tasks <= FIGURES_UP_TO else 4.6)
    return fig.draw(f"Unit masks of {site}", fig.FULL, height, paint)


def _row_counts(axes: Axes, title: str, counts: Sequence[int], place: float, colour: str) -> None:
    across = axes.get_yaxis_transform()
    axes.text(place, -0.75, title, transform=across, ha="right", va="bottom", color=colour, fontsize=8.5)
    for row, count in enumerate(counts):
        axes.text(place, row, f"{count}", transform=across, ha="right", va="center_baseline", fontsize=8.5)


def training_curves(names: Sequence[str], epochs: Sequence[Epoch]) -> str:
    """Draw loss, validation accuracy, capacity and learning rate over all epochs, one band a task.

    A panel without any value is left out; without any panel, the picture is the empty string.
    """
    curves = {
        "loss": {"training": _values(epochs, "train_loss"), "validation": _values(epochs, "valid_loss")},
        "validation accuracy": {"": _values(epochs, "valid_accuracy")},
        "capacity used": {"": _values(epochs, "capacity")},
        "learning rate": {"": _values(epochs, "lr")},
    }
    panels = {
        title: {name: values for name, values in lines.items() if np.isfinite(values).any()}
        for title, lines in curves.items()
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return ""
    heights = [1.9 if title == "loss" else 1.5 if title == "validation accuracy" else 0.95 for title in panels]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, lines) in zip(grid, panels.items(), strict=True):
            _task_bands(axes, epochs)
            _curves(axes, title, lines, epochs)
        _band_names(grid[0], names, epochs)
        if len(panels.get("loss", {})) > 1:
            handles, labels = grid[0].get_legend_handles_labels()
            figure.legend(
                handles,
                labels,
                loc="outside upper right",
                ncols=2,
                frameon=False,
                fontsize=8.5,
                borderaxespad=0,
            )
        grid[-1].set_xlabel("epoch, all tasks counted through")
        grid[-1].xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))

    return fig.draw("Training curves", fig.FULL, 0.8 + 1.15 * sum(heights), paint)


def _values(epochs: Sequence[Epoch], field: str) -> Floats:
    values = np.array([getattr(epoch, field) for epoch in epochs], np.float64)  # None becomes NaN
    return np.where(np.isfinite(values), values, np.nan)


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
            axes.text(
                (first + last) / 2,
                1.03,
                text,
                transform=axes.get_xaxis_transform(),
                ha="center",
                fontsize=8.5,
            )


def _curves(axes: Axes, title: str, lines: Mapping[str, Floats], epochs: Sequence[Epoch]) -> None:
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
    axes.tick_params(which="both", length=0)
    axes.spines["left"].set_visible(False)
    every = np.concatenate(list(lines.values()))
    if title == "learning rate" and np.nanmin(every) > 0:
        axes.set_yscale("log")
        ends = sorted({float(np.nanmin(every)), float(np.nanmax(every))})
        axes.set_yticks(ends, [f"{rate:.2g}" for rate in ends])
        axes.set_yticks([], minor=True)
    elif title in ("validation accuracy", "capacity used"):
        axes.yaxis.set_major_locator(fig.UpToOne("auto", steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(fig.Percent())
