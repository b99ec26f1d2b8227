"""The pictures of a run's room: how many tasks still fit, and how large the network has become."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from hatrack.errors import HatrackError
from hatrack.measure.forecast import LITTLE, QUANTILES, ahead, appetites, fitting
from hatrack.report import picture as fig
from hatrack.report.picture import HALF, Picture
from hatrack.report.read import Capacity, Run
from hatrack.report.source import Source, as_run
from hatrack.report.words import whole

if TYPE_CHECKING:
    from hatrack.measure.shares import Share

AHEAD = 20  # tasks that are shown


def forecast(result: Source) -> Picture:
    """Draw the free share of the scarcest layer after each task, and what it may be after tasks to come."""
    run = as_run(result)
    capacities = [_share(after) for after in run.result.capacity or ()]
    if len(capacities) < 2:
        raise HatrackError("a forecast needs two tasks at least, by a method that sets weights aside for each.")
    widened = {step.tasks: _share(step.taken) for step in run.result.growth or () if step.taken is not None}
    last = widened.get(len(capacities)) or capacities[-1]
    paths = ahead(*appetites(capacities, widened), [1 - taken for taken in last["layers"].values()])
    free = np.array([1 - max(after["layers"].values()) for after in capacities])
    low, middle, high = np.quantile(paths[:, : AHEAD + 1].min(2), QUANTILES, axis=0)
    places = len(free) - 1 + np.arange(AHEAD + 1)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(LITTLE, color=fig.INK, linewidth=0.8, linestyle=(0, (4, 2)))
        colour = fig.order_colours(1)[0]
        axes.fill_between(places, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(places, middle, color=colour, linestyle=(0, (2, 2)))
        axes.plot(free, color=colour)
        axes.set_ylim(0, 1.02)
        fig.over_tasks_axes(axes, len(free) + AHEAD, percents=True)

    caption = (
        f"Weights that are free in the layer with the fewest: so far, and what tasks like these would leave, eight of "
        f"ten draws in the band. Tasks that still begin with {LITTLE:.0%} (dashed) or more: {fitting(paths, LITTLE)}."
    )
    return Picture("Room for tasks to come", "Room for tasks to come", HALF, 3.1, paint, caption)


def _share(taken: Capacity) -> Share:
    return {"total": taken.total, "layers": dict(taken.layers)}


def parameters(result: Source) -> Picture:
    """Draw how many parameters the network had for each task."""
    run = as_run(result)
    sizes = sizes_over_tasks(run)
    if sizes is None:
        raise HatrackError("the network was not widened, so there is no picture of its growth.")

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.step(np.arange(len(sizes)), sizes, where="mid", color=fig.order_colours(1)[0])
        axes.set_ylim(0, 1.05 * max(sizes))
        fig.over_tasks_axes(axes, len(sizes))

    said = "; ".join(
        f"before task {step.tasks + 1} from {whole(step.parameters[0])} to {whole(step.parameters[1])}"
        for step in run.result.growth or ()
    )
    caption = f"Parameters of the network that each task was learned with, without heads. It was widened {said}."
    return Picture("Growth of the network", "Growth of the network", HALF, 3.1, paint, caption)


def sizes_over_tasks(run: Run) -> list[int] | None:
    """Return the parameters of the network that every task was learned with; None where it never grew."""
    steps = run.result.growth
    if not steps:
        return None
    sizes = []
    for task in range(len(run.names)):
        done = [step for step in steps if step.tasks <= task]
        sizes.append(done[-1].parameters[1] if done else steps[0].parameters[0])
    return sizes
