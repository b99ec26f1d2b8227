"""What all pictures share: palette, a style that no user configuration can change, SVG fit for a page."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, TypeAlias

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

Colour: TypeAlias = "tuple[float, float, float]"

INK, MUTED, HAIRLINE, BAND = "#1d2733", "#5d6b7a", "#dfe4ea", "#f5f7f9"
NEW, REUSED, HELD, FREE = "#e08a2e", "#2b6a99", "#dbe1e8", "#f5f7f9"

SHARE: Colormap = LinearSegmentedColormap.from_list("share", ["#f1f5f8", "#b5d0df", "#5b97b8", "#24587f", "#143552"])
ORDER: Colormap = LinearSegmentedColormap.from_list("order", ["#1c3d66", "#2c7f93", "#6bb38a", "#e0a93b", "#c8553d"])

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


def draw(label: str, width: float, height: float, paint: Callable[[Figure], None]) -> str:
    """Let `paint` fill a figure of the given size in inches, and return it as an <svg> element named `label`.

    Text stays text: the page's own font sets it, and it can be searched. The label salts the ids, so that two
    pictures on one page never share one.
    """
    style = {**_STYLE, "svg.hashsalt": label}
    with matplotlib.style.context(["default", style], after_reset=True), warnings.catch_warnings():
        # The browser sets the text, so that a letter missing from matplotlib's own font does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inline(out.getvalue(), label)


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


def readable_on(background: Sequence[float] | NDArray[np.float64]) -> str:
    """Return ink or white, whichever stands out from the background (Rec. 709 luma)."""
    red, green, blue = background[:3]
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.52 else INK


def blocks(colours: NDArray[np.float64], wanted: tuple[int, int] = (600, 1500)) -> NDArray[np.uint8]:
    """Return an image as bytes, each cell repeated so often that a viewer that smooths cannot blur it."""
    rows, columns = (max(1, -(-want // have)) for want, have in zip(wanted, colours.shape[:2], strict=True))
    small = np.round(255 * colours).astype(np.uint8)
    return np.repeat(np.repeat(small, rows, axis=0), columns, axis=1)


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
        """Return the labels of all ticks of an axis."""
        percents = 100 * np.asarray(values)
        exact = (d for d in range(MOST_DECIMALS) if np.allclose(percents, np.round(percents, d), rtol=0, atol=1e-9))
        self.decimals = next(exact, MOST_DECIMALS)
        return super().format_ticks(values)


class UpToOne(MaxNLocator):
    """Ticks of a share: an axis leaves room above 1, where there is nothing to read off."""

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return the ticks between two ends, up to 1."""
        return [tick for tick in super().tick_values(vmin, vmax) if tick < 1 + 1e-9]


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
