"""What a search explores: the ranges that a method declares for its hyper-parameters (`hyper(search=...)`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hatrack.errors import HatrackError
from hatrack.methods import METHODS
from hatrack.methods.hyper import Hyper, hyperparameters


def space(method: str, fixed: Collection[str]) -> dict[str, Hyper]:
    """Return the hyper-parameters with a range, without those that are `fixed`."""
    declared = {name: h for name, h in hyperparameters(METHODS[method]).items() if h.search is not None}
    found = {name: h for name, h in declared.items() if name not in fixed}
    if not found or not METHODS[method].trains:
        why = "it never trains" if not METHODS[method].trains else "all that have a range are set"
        raise HatrackError(f"nothing to tune of {method!r}: {why}.")
    return found


def suggest(trial: Any, hyper: Hyper) -> Any:
    """Let Optuna choose a value."""
    assert hyper.search is not None
    if not _is_range(hyper):
        return trial.suggest_categorical(hyper.name, list(hyper.search))
    low, high, scale = hyper.search
    choose = trial.suggest_int if hyper.type is int else trial.suggest_float
    return choose(hyper.name, low, high, log=scale == "log")


def within(hyper: Hyper) -> bool:
    """Say whether the default lies in the range."""
    assert hyper.search is not None
    if not _is_range(hyper):
        return hyper.default in hyper.search
    return bool(hyper.search[0] <= hyper.default <= hyper.search[1])


def _is_range(hyper: Hyper) -> bool:
    return hyper.search is not None and len(hyper.search) == 3 and isinstance(hyper.search[2], str)
