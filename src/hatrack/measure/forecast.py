"""How many more tasks a network has room for, from how much of it each task so far has taken.

F      the share of a layer's weights that was free before a task, n the share of the layer that the task took
model  n = ρ·F^(1+β) in every layer: with β = 0 a task takes the same part of what is free, with more the fewer are
       free the more is used again; few tasks cannot tell, so that every draw has its own β out of BETAS
spread a draw finds ρ from tasks drawn with replacement (least squares of n/F), and the tasks to come take what the
       residuals n / ρ·F^(1+β) of tasks so far make of it, each of one task in all layers

A task fits while every layer has at least `little` of its weights free before it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hatrack.measure.shares import Share

Floats = npt.NDArray[np.float64]
LITTLE = 0.05  # share of a layer's weights, below which a task finds no room
BETAS = np.array([0.0, 0.5, 1.0])
DRAWS = 600
HORIZON = 200  # tasks beyond which nothing is said
QUANTILES = (0.1, 0.5, 0.9)
ROUNDING = 1e-9


def appetites(
    capacities: Sequence[Share], widened: Mapping[int, Share | None]
) -> tuple[list[list[float]], list[list[float]]]:
    """Return the free shares of all layers before every task, and what it took of them.

    capacities  what was taken after each task; widened: what was after a growth, by the number of tasks before it
    """
    before, took = [], []
    for task, after in enumerate(capacities):
        last = widened.get(task) or (capacities[task - 1] if task else None)
        start = [0.0 if last is None else last["layers"].get(layer, 0.0) for layer in after["layers"]]
        before.append([1 - taken for taken in start])
        took.append([max(0.0, end - taken) for end, taken in zip(after["layers"].values(), start, strict=True)])
    return before, took


class Range(NamedTuple):
    """What eight of ten draws lie within, and their middle."""

    low: int
    middle: int
    high: int

    def __str__(self) -> str:
        def said(count: int) -> str:
            return f"{count}" if count < HORIZON else f"{HORIZON} or more"

        return said(self.middle) if self.low == self.high else f"{said(self.middle)} ({self.low} to {said(self.high)})"


def ahead(before: Sequence[Sequence[float]], taken: Sequence[Sequence[float]], free: Sequence[float]) -> Floats:
    """Return the free share of each layer, draw by draw, before each of the next HORIZON + 1 tasks.

    before, taken  of each task so far: the shares of the layers that were free, and those that it took
    free           what is free now
    """
    shares, took = np.asarray(before, np.float64), np.asarray(taken, np.float64)
    numbers = np.random.default_rng(0)
    rows = numbers.integers(len(shares), size=(DRAWS, len(shares)))
    beta = numbers.choice(BETAS, size=(DRAWS, 1))
    rho = _fitted(shares[rows], took[rows], beta[:, None])
    expected = rho[:, None] * shares ** (1 + beta[:, None])
    ratios = np.divide(took, expected, out=np.zeros_like(expected), where=expected > 0)
    found = np.empty((DRAWS, HORIZON + 1, shares.shape[1]))
    found[:, 0] = free
    every = np.arange(DRAWS)
    for task in range(HORIZON):
        now = found[:, task]
        takes = rho * now ** (1 + beta) * ratios[every, numbers.integers(len(shares), size=DRAWS)]
        found[:, task + 1] = np.clip(now - takes, 0.0, 1.0)
    return found


def fitting(paths: Floats, little: float) -> Range:
    """Return how many tasks fit: that begin while every layer has at least `little` free."""
    roomy = paths.min(2) >= little - ROUNDING
    counts = np.where(roomy.all(1), HORIZON, roomy.argmin(1))
    low, middle, high = np.quantile(counts, QUANTILES, method="nearest")
    return Range(int(low), int(middle), int(high))


def _fitted(shares: Floats, took: Floats, beta: Floats) -> Floats:
    """Return ρ of every draw and layer: the least squares of n/F against ρ·F^β."""
    part, power = np.divide(took, shares, out=np.zeros_like(took), where=shares > 0), shares**beta
    square: Floats = (power**2).sum(1)
    found: Floats = np.divide((power * part).sum(1), square, out=np.zeros_like(square), where=square > 0)
    return found
