"""Pictures of a rule itself, which need no run."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from hatrack.errors import HatrackError
from hatrack.report import picture as fig
from hatrack.report.picture import FULL, Picture
from hatrack.report.read import Floats

EMBEDDING_RANGE = 6.0  # of an embedding entry e
COSH_RANGE = 50.0  # of s·e in the compensation


def embedding_gradient(s_max: float = 400.0, batches: int = 1000) -> Picture:
    """Draw what HAT's annealing does to the gradient of an embedding, and its compensation (HAT, Figure 2)."""
    if s_max < 1 or batches < 2:
        raise HatrackError(f"s_max must be 1 or more and batches 2 or more, got {s_max:g} and {batches}.")
    e = np.linspace(-EMBEDDING_RANGE, EMBEDDING_RANGE, 2401)
    lines = mean_gradients(e, s_max, batches)
    styles = {name: (0, (4, 2)) if name.startswith("s =") else "solid" for name in lines}

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for (name, values), colour in zip(lines.items(), (fig.MUTED, fig.INK, fig.REUSED, fig.NEW), strict=True):
            seen = np.where(values > 0, values, np.nan)
            axes.plot(e, seen, color=colour, linestyle=styles[name], label=name)
        axes.set_yscale("log")
        axes.set_ylim(1e-5, s_max / 2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_yticks([], minor=True)
        axes.set_xlim(-EMBEDDING_RANGE, EMBEDDING_RANGE)
        axes.set_xlabel("embedding e")
        axes.set_ylabel("mean gradient q")
        fig.bare(axes)
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)

    caption = (
        f"The gradient of e over an epoch of {batches} batches, with a slope of 1 at the gate in each: the mean of "
        f"s·σ′(s·e). With s = {s_max:g} or annealed up to it, only entries near 0 would move. The compensation gives "
        f"it the width that it has with s = 1; it is lower than at s = {s_max:g} since beyond |s·e| = {COSH_RANGE:g} "
        "it is held, and the gradient runs out. In float32, σ is 1 from s·e ≈ 17 on, and the gradient of an open gate "
        "ends there."
    )
    label = "Gradient of an embedding over an epoch"
    return Picture(label, label, FULL, 3.6, paint, caption)


def mean_gradients(e: Floats, s_max: float, batches: int) -> dict[str, Floats]:
    """Return the mean over an epoch of q = s·σ′(s·e), with s fixed and annealed, and of q as it is compensated.

    q ← q·s_max·[cosh(s·e) + 1] / (s·[cosh(e) + 1]), |s·e| ≤ 50
    """
    annealed, compensated = np.zeros_like(e), np.zeros_like(e)
    for s in np.linspace(1 / s_max, s_max, batches):
        q = s * _slope(s * e)
        annealed += q / batches
        imposed = np.cosh(np.clip(s * e, -COSH_RANGE, COSH_RANGE)) + 1
        compensated += q * s_max * imposed / (s * (np.cosh(e) + 1)) / batches
    return {
        "s = 1": _slope(e),
        f"s = {s_max:g}": s_max * _slope(s_max * e),
        "annealed": annealed,
        "annealed and compensated": compensated,
    }


def _slope(x: Floats) -> Floats:
    """Return σ′(x), without overflow."""
    small = np.exp(-np.abs(x))
    slope: Floats = small / (1 + small) ** 2
    return slope
