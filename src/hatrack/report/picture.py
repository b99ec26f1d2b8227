"""A picture, and what all pictures share: palette, and a style that no user configuration can change."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from hatrack import atomic
from hatrack.errors import HatrackError

Colour: TypeAlias = "tuple[float, float, float]"
Floats: TypeAlias = NDArray[np.float64]

INK, MUTED, HAIRLINE, BAND = "#1d2733", "#5d6b7a", "#dfe4ea", "#f5f7f9"
NEW, REUSED, HELD, FREE = "#e08a2e", "#2b6a99", "#dbe1e8", "#f5f7f9"

SHARE: Colormap = LinearSegmentedColormap.from_list("share", ["#f1f5f8", "#b5d0df", "#5b97b8", "#24587f", "#143552"])
ORDER: Colormap = LinearSegmentedColormap.from_list("order", ["#1c3d66", "#2c7f93", "#6bb38a", "#e0a93b", "#c8553d"])

PIXELS = (1000, 1500)  # that an image has at least
MOST_DECIMALS = 6  # of a percent
HALF, FULL = 4.85, 10.0  # inches; the page is 10 inches (960 CSS pixels) wide

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": HAIRLINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": HAIRLINE,
    "grid.linewidth": 0.6,
    "xtick.color": HAIRLINE,
    "ytick.color": HAIRLINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "text.color": INK,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


_SAVED: dict[str, dict[str, Any]] = {
    "svg": {"metadata": dict.fromkeys(("Date", "Creator", "Format", "Type"))},
    "png": {"dpi": 200, "facecolor": "white"},
    "pdf": {"metadata": {"CreationDate": None}},
}


@dataclass(frozen=True)
class Picture:
    """A picture, drawn when it is looked at: `.svg` for a page, shown by itself in a notebook, `.save`d as a file.

    `label` names it, and salts the ids in its SVG, so that two pictures on one page never share one; `paint` fills a
    figure of `width` × `height` inches; `caption` says how to read it, `about` what it is of.
    """

    label: str
    title: str
    width: float
    height: float
    paint: Callable[[Figure], None]
    caption: str = ""
    about: str = ""

    @cached_property
    def svg(self) -> str:
        """The picture as an <svg> element. Text stays text: the page's own font sets it, and it can be searched."""
        return _inline(self._drawn("svg").decode(), self.label)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write a file: .svg, .png or .pdf, as its name ends."""
        form = Path(path).suffix[1:].lower()
        if form not in _SAVED:
            raise HatrackError(f"a picture is saved as one of {', '.join(_SAVED)}, got the name {str(path)!r}.")
        atomic.write(Path(path), self._drawn(form))

    def _drawn(self, form: str) -> bytes:
        style = {**_STYLE, "svg.hashsalt": self.label}
        with matplotlib.style.context(["default", style], after_reset=True), warnings.catch_warnings():
            # The browser sets the text, so that a letter missing from matplotlib's own font does not matter.
            warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
            figure = Figure(figsize=(self.width, self.height), layout="constrained")
            FigureCanvasSVG(figure)
            self.paint(figure)
            out = io.BytesIO()
            figure.savefig(out, format=form, **_SAVED[form])
        return out.getvalue()


def _inline(document: str, label: str) -> str:
    """Strip what belongs to a file of its own: prolog, page-wide style, and ids that nothing refers to."""
    svg = document[document.index("<svg") :].rstrip()
    svg = re.sub(r'<style type="text/css">.*?</style>', "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)


def short(name: str, limit: int = 18) -> str:
    """Return the name on one line, cut to `limit` characters."""
    name = " ".join(name.split())
    return name if len(name) <= limit else name[: limit - 1].rstrip() + "…"


def order_colours(count: int) -> list[Colour]:
    """Return `count` colours that run from first to last."""
    places = np.linspace(0, 1, count) if count > 1 else np.array([0.25])
    return [to_rgb(ORDER(float(place))) for place in places[:count]]


def readable_on(background: Sequence[float] | Floats) -> str:
    """Return ink or white, whichever stands out from the background (Rec. 709 luma)."""
    red, green, blue = background[:3]
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.52 else INK


def blocks(colours: Floats, wanted: tuple[int, int] = PIXELS) -> NDArray[np.uint8]:
    """Return an image as bytes, each cell repeated so often that a viewer that smooths cannot blur it."""
    rows, columns = (max(1, -(-want // have)) for want, have in zip(wanted, colours.shape[:2], strict=True))
    small = np.round(255 * colours).astype(np.uint8)
    return np.repeat(np.repeat(small, rows, axis=0), columns, axis=1)


def image(
    axes: Axes, colours: Floats, extent: tuple[float, float, float, float], wanted: tuple[int, int] = PIXELS
) -> None:
    """Show a colour a cell, from left to right and top to bottom of `extent`, without grid or frame."""
    axes.imshow(blocks(colours, wanted), extent=extent, aspect="auto", interpolation="none")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def heat_map(axes: Axes, table: Floats, scale: Normalize, bands: Colormap = SHARE) -> Floats:
    """Show a table by colour, clear where it has no value; return the colours of its cells."""
    colours: Floats = bands(scale(table))
    colours[~np.isfinite(table)] = 0.0
    rows, columns = table.shape
    image(axes, colours, (-0.5, columns - 0.5, rows - 0.5, -0.5))
    return colours


def cell_figures(axes: Axes, table: Floats, colours: Floats, write: Callable[[float], str], size: int = 9) -> None:
    """Write the values of a table into its cells."""
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            colour = readable_on(colours[i, j])
            axes.text(j, i, write(value), ha="center", va="center_baseline", color=colour, fontsize=size)


def over_tasks_axes(axes: Axes, count: int, *, percents: bool = False, up_to_one: bool = False) -> None:
    """Lay out axes whose places from left to right are the tasks after which something was measured."""
    axes.set_xlim(-0.3, max(count - 0.7, 0.3))
    axes.yaxis.set_major_locator((UpToOne if up_to_one else MaxNLocator)(6, steps=[1, 2, 5, 10]))
    if percents:
        axes.yaxis.set_major_formatter(Percent())
    bare(axes, "y")
    task_ticks(axes, [""] * count, "x", named=False)
    axes.set_xlabel("after learning task")


def bare(axes: Axes, which: Literal["x", "y", "both"] = "both") -> None:
    """Take away the frame's left side and the ticks' lines."""
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis=which, which="both", length=0)


def over_epochs_axis(axes: Axes) -> None:
    """Count the epochs of all tasks from left to right."""
    axes.set_xlabel("epoch, all tasks counted through")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def share_axis(side: Axis) -> None:
    """Mark shares as percents, none above all."""
    side.set_major_locator(UpToOne("auto", steps=[1, 2, 2.5, 5, 10]))
    side.set_major_formatter(Percent())


def task_ticks(axes: Axes, names: Sequence[str], axis: str, *, named: bool) -> None:
    """Mark tasks 1..n on one axis: by name and number if `named` and there is room, else by number."""
    count = len(names)
    step = 1 if count <= 20 else 5 if count <= 50 else 10
    places = [i for i in range(count) if step == 1 or (i + 1) % step == 0 or i == 0]
    labels = [f"{i + 1} · {short(names[i])}" if named and step == 1 else str(i + 1) for i in places]
    side = axes.xaxis if axis == "x" else axes.yaxis
    side.set_ticks(places, labels)
    side.set_tick_params(length=0)


def colour_bar(figure: Figure, axes: Axes, scale: Normalize, colours: Colormap) -> Axes:
    """Put a slim colour bar, equally wide in every picture, to the right of the axes, and return its axes."""
    slim = 7.0 * figure.get_figheight()
    bar = figure.colorbar(ScalarMappable(scale, colours), ax=axes, aspect=slim, fraction=0.08, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    made: Axes = bar.ax
    return made


class Percent(PercentFormatter):
    """Shares as percents, with the decimals that the ticks have: a fixed number would write neighbours alike."""

    def __init__(self) -> None:
        super().__init__(1.0, symbol=" %")

    def format_ticks(self, values: list[float]) -> list[str]:
        percents = 100 * np.asarray(values)
        exact = (d for d in range(MOST_DECIMALS) if np.allclose(percents, np.round(percents, d), rtol=0, atol=1e-9))
        self.decimals = next(exact, MOST_DECIMALS)
        return super().format_ticks(values)


class UpToOne(MaxNLocator):
    """Ticks of a share: an axis leaves room above 1, where there is nothing to read off."""

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        return [tick for tick in super().tick_values(vmin, vmax) if tick < 1 + 1e-9]


def end_labels(axes: Axes, lines: Sequence[tuple[str, Floats, Colour]], gap: float, first: int = 0) -> None:
    """Write each line's name beside its last value, moved apart where names would overlap; `first`: where x begins."""
    bottom, top = axes.get_ylim()
    known = [(name, np.flatnonzero(np.isfinite(values)), values, colour) for name, values, colour in lines]
    ends = [(name, int(at[-1]), float(values[at[-1]]), colour) for name, at, values, colour in known if len(at)]
    heights = spread([(value - bottom) / (top - bottom) for _, _, value, _ in ends], gap)
    for (name, place, value, colour), height in zip(ends, heights, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 4}
        axes.annotate(
            short(name, 24),
            xy=(first + place, value),
            xytext=(1.05, height),
            textcoords="axes fraction",
            color=tuple(0.85 * part for part in colour),
            va="center",
            fontsize=8.5,
            arrowprops=leader,
        )


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Move positions in 0..1 apart until neighbours are `gap` apart, each as little as possible.

    Their order stays; of equal positions the first comes out on top. With the k-th lowest lowered by k·gap,
    "at least a gap apart" means "not falling", so that the nearest such sequence is an isotonic regression:
    neighbours that would fall are pooled at their mean. Where they do not all fit, they share the room.
    """
    gap = min(gap, 1 / max(len(wanted) - 1, 1))
    upward = sorted(range(len(wanted)), key=lambda i: (wanted[i], -i))
    pools: list[list[float]] = []
    for rank, i in enumerate(upward):
        pools.append([wanted[i] - rank * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    levels = [fmean(pool) for pool in pools for _ in pool]
    room = 1 - gap * (len(wanted) - 1)
    placed = dict.fromkeys(range(len(wanted)), 0.0)
    for rank, (i, level) in enumerate(zip(upward, levels, strict=True)):
        placed[i] = min(max(level, 0.0), room) + rank * gap
    return list(placed.values())
