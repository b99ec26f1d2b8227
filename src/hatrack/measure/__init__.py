"""Measures as pure functions: over accuracy matrices, lock tensors, importances, and seeds."""

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
from hatrack.measure.figures import NEEDS, missing, summary
from hatrack.measure.ratio import rho, rho_matrix
from hatrack.measure.seeds import Interval, Paired, interval, paired
from hatrack.measure.shares import blocked, capacity, reuse, share

__all__ = [
    "NEEDS",
    "Interval",
    "Paired",
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
    "interval",
    "missing",
    "paired",
    "reuse",
    "rho",
    "rho_matrix",
    "share",
    "summary",
]
