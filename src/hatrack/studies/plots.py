"""The pictures of a study's report: each function takes plain data and returns one <svg> element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator

from hatrack.measure import Interval, interval
from hatrack.report import figure as fig
from hatrack.report.plots import end_labels
from hatrack.report.read import Epoch, Floats
from hatrack.studies.table import Cell

SHADED = 3  # seeds from which on an interval is drawn over the tasks


def seed_points(label: str, cells: Mapping[str, Cell], *, bounded: bool) -> str:
    """Draw one measure: a dot a seed, a diamond with its 95 % interval, the paper's mean and band in orange.

    `bounded`: the measure is never more than 1.
    """
    shown = {name: cell for name, cell in cells.items() if cell.values or cell.figure}

    def paint(picture: Picture) -> None:
        axes = picture.add_subplot()
        for y, cell in enumerate(shown.values()):
            _paper(axes, y, cell)
            if cell.interval is not None:
                values = list(cell.values.values())
                axes.plot(values, [y] * len(values), "o", color=fig.REUSED, alpha=0.4, markersize=6, linestyle="")
                _interval(axes, y, cell.interval)
        axes.set_yticks(range(len(shown)), [fig.short(name, 24) for name in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.tick_params(length=0)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator((fig.UpToOne if bounded else MaxNLocator)(6, steps=[1, 2, 5, 10]))
        axes.set_xlim(_room(list(shown.values())))

    return fig.draw(label, fig.HALF, 0.7 + 0.3 * max(len(shown), 2), paint)


def _room(cells: Sequence[Cell]) -> tuple[float, float]:
    """Return the limits that show all seeds and bands; the interval of two seeds may well reach beyond."""
    every = [value for cell in cells for value in cell.values.values()]
    every += [end for cell in cells if cell.figure for end in (cell.figure.low, cell.figure.high)]
    room = 0.12 * (max(every) - min(every)) or 0.01
    return min(every) - room, max(every) + room


def _paper(axes: Axes, y: int, cell: Cell) -> None:
    if cell.figure is not None:
        low, high = cell.figure.low, cell.figure.high
        axes.fill_between([low, high], y - 0.32, y + 0.32, color=fig.NEW, alpha=0.22, linewidth=0)
        axes.plot([cell.figure.mean] * 2, [y - 0.32, y + 0.32], color=fig.NEW, linewidth=2)


def _interval(axes: Axes, y: int, found: Interval) -> None:
    if found.half is not None:
        axes.plot([found.mean - found.half, found.mean + found.half], [y, y], color=fig.REUSED, linewidth=1.6)
    axes.plot([found.mean], [y], "D", color=fig.REUSED, markersize=7.5)


def over_tasks(label: str, lines: Mapping[str, Sequence[Sequence[float]]], *, among: Sequence[str], zero: bool) -> str:
    """Draw a measure after each task: a line a method through its means, shaded where the 95 % interval is.

    `lines` gives, for a method and each task, the values of its seeds; `zero` marks the level of joint training;
    `among`: all methods of the table, so that each has the same colour in every picture. The interval of fewer than
    SHADED seeds covers the whole picture: then each seed has a thin line of its own.
    """
    colours = dict(zip(among, fig.order_colours(len(among)), strict=True))
    height = max(3.3, 0.8 + 0.2 * len(lines))

    def paint(picture: Picture) -> None:
        axes = picture.add_subplot()
        if zero:
            axes.axhline(0, color=fig.INK, linewidth=0.8)
        ends = []
        for name, values in lines.items():
            colour = colours[name]
            found = [interval(list(seeds)) for seeds in values]
            means = np.array([f.mean for f in found])
            halves = np.array([f.half or 0.0 for f in found])
            places = np.arange(len(means))
            if len(values[0]) >= SHADED:
                axes.fill_between(places, means - halves, means + halves, color=colour, alpha=0.15, linewidth=0)
            else:
                axes.plot(places, np.array(values), color=colour, alpha=0.4, linewidth=0.7)
            axes.plot(places, means, color=colour, marker="o" if len(means) <= 20 else "", markersize=3.5)
            ends.append((name, float(means[-1]), colour))
        count = max(len(values) for values in lines.values())
        every = [v for values in lines.values() for seeds in values for v in seeds]
        room = 0.06 * (max(every) - min(every)) + 0.005
        axes.set_ylim(min(every) - room, max(every) + room)
        axes.set_xlim(-0.3, max(count - 0.7, 0.3))
        axes.yaxis.set_major_locator((MaxNLocator if zero else fig.UpToOne)(6, steps=[1, 2, 5, 10]))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        fig.task_ticks(axes, [""] * count, "x", named=False)
        axes.set_xlabel("after learning task")
        end_labels(axes, count - 1, ends, 0.17 / (height - 0.6))

    return fig.draw(label, fig.HALF if len(lines) <= 12 else fig.FULL, height, paint)


def setting_map(label: str, axes_names: Sequence[str], values: Mapping[tuple[float, float], float]) -> str:
    """Draw a measure over a grid of two settings, the first across and the second down."""
    across, down = (sorted({point[i] for point in values}) for i in (0, 1))
    table = np.full((len(down), len(across)), np.nan)
    for (x, y), value in values.items():
        table[down.index(y), across.index(x)] = value
    scale = Normalize(float(np.nanmin(table)), float(np.nanmax(table)) + 1e-9)
    colours = fig.SHARE(scale(table))
    colours[~np.isfinite(table)] = 0.0

    def paint(picture: Picture) -> None:
        axes = picture.add_subplot()
        extent = (-0.5, len(across) - 0.5, len(down) - 0.5, -0.5)
        axes.imshow(fig.blocks(colours, (1000, 1000)), extent=extent, aspect="auto", interpolation="none")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_xticks(range(len(across)), [f"{x:g}" for x in across])
        axes.set_yticks(range(len(down)), [f"{y:g}" for y in down])
        axes.tick_params(length=0)
        axes.set_xlabel(axes_names[0])
        axes.set_ylabel(axes_names[1])
        for (i, j), value in np.ndenumerate(table):
            if np.isfinite(value):
                axes.text(j, i, f"{value:.3f}", ha="center", va="center_baseline", color=fig.readable_on(colours[i, j]))
        fig.colour_bar(picture, axes, scale, fig.SHARE)

    return fig.draw(label, fig.FULL, 1.0 + 0.42 * len(down), paint)


def setting_line(label: str, name: str, values: Mapping[float, Sequence[float]]) -> str:
    """Draw a measure over the values of one setting: a dot a seed and a line through the means."""
    places = sorted(values)

    def paint(picture: Picture) -> None:
        axes = picture.add_subplot()
        for place in places:
            axes.plot([place] * len(values[place]), values[place], "o", color=fig.REUSED, alpha=0.6, markersize=5)
        axes.plot(places, [interval(list(values[place])).mean for place in places], color=fig.REUSED)
        if min(places) > 0 and max(places) / min(places) > 20:
            axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(name)

    return fig.draw(label, fig.HALF, 3.1, paint)


def capacity_over_epochs(label: str, runs: Mapping[str, Sequence[Epoch]]) -> str:
    """Draw the share of weights in use after every epoch, dashed where a task begins."""
    colours = fig.order_colours(len(runs))

    def paint(picture: Picture) -> None:
        axes = picture.add_subplot()
        ends = []
        longest = max(len(epochs) for epochs in runs.values())
        for (name, epochs), colour in zip(runs.items(), colours, strict=True):
            values = _numbers([epoch.capacity for epoch in epochs])
            axes.plot(np.arange(1, len(values) + 1), values, color=colour)
            for place, epoch in enumerate(epochs):
                if place and epoch.task != epochs[place - 1].task:
                    axes.axvline(place + 0.5, color=colour, linewidth=0.6, linestyle=(0, (3, 3)), alpha=0.7)
            ends.append((name, float(values[-1]), colour))
        axes.set_xlim(0.5, longest + 0.5)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(fig.Percent())
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("epoch, all tasks counted through")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
        end_labels(axes, longest, ends, 0.06)

    return fig.draw(label, fig.FULL, 3.6, paint)


def compression(label: str, runs: Mapping[str, Sequence[Epoch]], plain: Mapping[str, float]) -> str:
    """Draw validation accuracy against the share of weights in use, a dot an epoch; a line across for `plain`."""
    colours = fig.order_colours(len(runs))

    def paint(picture: Picture) -> None:
        axes = picture.add_subplot()
        for (name, epochs), colour in zip(runs.items(), colours, strict=True):
            kept = _numbers([epoch.capacity for epoch in epochs])
            right = _numbers([epoch.valid_accuracy for epoch in epochs])
            axes.plot(kept, right, "o", color=colour, markersize=4, alpha=0.7, label=fig.short(name))
            if name in plain:
                axes.plot([1.0], [plain[name]], "^", color=to_rgb(colour), markersize=7, clip_on=False)
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("share of the weights in use")
        axes.set_ylabel("validation accuracy")
        for side in (axes.xaxis, axes.yaxis):
            side.set_major_locator(fig.UpToOne("auto", steps=[1, 2, 2.5, 5, 10]))
            side.set_major_formatter(fig.Percent())
        axes.tick_params(length=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)

    return fig.draw(label, fig.FULL, 4.2, paint)


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)
