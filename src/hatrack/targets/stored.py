"""Targets from what a saved learner says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from hatrack.errors import HatrackError
from hatrack.targets.base import Score, Target
from hatrack.targets.classification import Classification
from hatrack.targets.dense import Dense
from hatrack.targets.multilabel import MultiLabel
from hatrack.targets.regression import Regression

OURS: dict[str, type[Target]] = {made.name: made for made in (Classification, MultiLabel, Regression, Dense)}


@dataclass(frozen=True)
class Foreign(Target):
    """A target of the user's, of which a saved learner knows no more than the head; no code is loaded for it."""

    name: str = ""  # type: ignore[misc]
    width: int = 1
    positions: bool = False

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def per_position(self) -> bool:  # type: ignore[override]
        return self.positions

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        raise self._missing()

    def new_score(self) -> Score:
        raise self._missing()

    def _missing(self) -> HatrackError:
        return HatrackError(f"target {self.name!r} is the user's own; hand the task in again: learner.remember(task).")

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "outputs": self.width, "per_position": self.positions}


def restored(told: Mapping[str, Any]) -> Target:
    """Return the target that `Target.described` has told of."""
    made = OURS.get(told["name"])
    if made is None:
        return Foreign(told["name"], told["outputs"], told["per_position"])
    taken = {f.name: told[f.name] for f in fields(made) if f.name in told}
    return made(**taken)
