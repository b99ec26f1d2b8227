"""Measures: a table of records, and the pure functions they are made of (accuracies, locks, importances, seeds)."""

from __future__ import annotations

from hatrack.measure.accuracy import (
    average_accuracy,
    backward_transfer,
    diagonal,
    difference_to_ncl,
    differences_to_ncl,
    forgetting,
    forward_transfer,
    forward_transfers,
)
from hatrack.measure.cross_head import chi
from hatrack.measure.free import free_accuracy
from hatrack.measure.measures import MEASURES, missing, summary
from hatrack.measure.ratio import rho, rho_matrix
from hatrack.measure.reading import Reading, reading
from hatrack.measure.record import REFERENCES, SERVES, Measure
from hatrack.measure.scale import Scale, scale
from hatrack.measure.seeds import Interval, Paired, interval, paired
from hatrack.measure.shares import blocked, capacity, reuse, share

__all__ = [
    "MEASURES",
    "REFERENCES",
    "SERVES",
    "Interval",
    "Measure",
    "Paired",
    "Reading",
    "Scale",
    "average_accuracy",
    "backward_transfer",
    "blocked",
    "capacity",
    "chi",
    "diagonal",
    "difference_to_ncl",
    "differences_to_ncl",
    "forgetting",
    "forward_transfer",
    "forward_transfers",
    "free_accuracy",
    "interval",
    "missing",
    "paired",
    "reading",
    "reuse",
    "rho",
    "rho_matrix",
    "scale",
    "share",
    "summary",
]
