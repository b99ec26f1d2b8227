"""Pictures of runs and studies: each function draws one, and returns a Picture (see CONTRIBUTING, "A new plot").

Those of a run take its folder, what its result.json holds, or a learner; those of a study take such runs by method.
In a notebook a Picture shows itself; `.save("x.svg")`, .png and .pdf write it to a file.
"""

from __future__ import annotations

from hatrack.report.formula_plots import embedding_gradient
from hatrack.report.growth_plots import forecast, parameters
from hatrack.report.picture import Picture
from hatrack.report.plots import (
    accuracy,
    capacity,
    found,
    masks,
    matrix,
    ratio,
    reuse,
    significance,
    training,
    weights,
)
from hatrack.report.study_plots import (
    capacity_over_epochs,
    compression,
    each_task,
    forward_transfer,
    over_tasks,
    seeds,
    settings,
)

__all__ = [
    "Picture",
    "accuracy",
    "capacity",
    "capacity_over_epochs",
    "compression",
    "each_task",
    "embedding_gradient",
    "forecast",
    "forward_transfer",
    "found",
    "masks",
    "matrix",
    "over_tasks",
    "parameters",
    "ratio",
    "reuse",
    "seeds",
    "settings",
    "significance",
    "training",
    "weights",
]
