"""All figures of one run in one place, and which other runs a missing one waits for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hatrack.errors import unknown
from hatrack.measure.accuracy import (
    Matrix,
    average_accuracy,
    backward_transfer,
    difference_to_ncl,
    forgetting,
    forward_transfer,
)
from hatrack.measure.ratio import rho

# The runs of other methods, on the same benchmark, network and seed, that a measure is taken against.
NEEDS: dict[str, tuple[str, ...]] = {
    "acc": (),
    "bwt": (),
    "forgetting": (),
    "fwt": ("one",),
    "rho": ("joint", "random"),
    "ncl": ("ncl",),
}


def missing(measure: str, have: Collection[str]) -> tuple[str, ...]:
    """Return the reference runs that `measure` needs and that are not among those at hand."""
    if measure not in NEEDS:
        raise unknown("measure", measure, NEEDS)
    return tuple(run for run in NEEDS[measure] if run not in have)


def summary(
    accuracy: Matrix,
    *,
    one: Sequence[float] | None = None,
    joint: Matrix | None = None,
    random: Sequence[float] | None = None,
    ncl: Matrix | None = None,
    sizes: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return every measure of a run, None where it does not exist yet, and in `missing` what such a one needs.

    `rho` is ρ^{≤T}; `rho_each` is ρ^{≤t} for every t. `one` and `random` are accuracies a task, `joint` and `ncl`
    matrices. With the test-set `sizes`, SPG's weighted figures are there too.
    """
    each = None if joint is None or random is None else rho(accuracy, joint, random)
    figures: dict[str, Any] = {
        "acc": average_accuracy(accuracy),
        "bwt": backward_transfer(accuracy),
        "fwt": None if one is None else forward_transfer(accuracy, one),
        "forgetting": forgetting(accuracy),
        "rho": None if each is None else each[-1],
        "rho_each": each,
        "ncl": None if ncl is None else difference_to_ncl(accuracy, ncl),
    }
    if sizes is not None:
        figures["acc_weighted"] = average_accuracy(accuracy, sizes)
        figures["bwt_weighted"] = backward_transfer(accuracy, sizes)
    given = {"one": one, "joint": joint, "random": random, "ncl": ncl}
    have = [run for run, value in given.items() if value is not None]
    waiting = {measure: list(lacking) for measure in NEEDS if (lacking := missing(measure, have))}
    return {**figures, "missing": waiting}
