"""Targets from what a saved learner says of them; no code is loaded for it.

Of what is the user's own (a whole target, or a loss or score in place of a target's), a saved learner knows the name,
and asks for it where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from torch import Tensor

from hatrack.errors import HatrackError
from hatrack.targets.base import Judged, Score, Target
from hatrack.targets.classification import Classification
from hatrack.targets.dense import Dense
from hatrack.targets.multilabel import MultiLabel
from hatrack.targets.regression import Regression

OURS: dict[str, type[Target]] = {made.name: made for made in (Classification, MultiLabel, Regression, Dense)}
AGAIN = "a saved learner does not hold it: hand the task in again, learner.remember(task)"


@dataclass(frozen=True)
class Foreign(Target):
    """A target of the user's; `told` is what it said of itself when it was saved."""

    name: str = ""  # type: ignore[misc]
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        return int(self.told["outputs"])

    @property
    def per_position(self) -> bool:  # type: ignore[override]
        return bool(self.told["per_position"])

    @property
    def units_axis(self) -> int | None:
        axis: int | None = self.told.get("units_axis")
        return axis

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        self._missing()

    def new_score(self) -> Score:
        self._missing()

    def distance(self, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        self._missing()

    def answer(self, output: Tensor) -> Tensor:
        if self.told["translates"]:
            self._missing()
        return output

    def decode(self, answer: Tensor) -> Any:
        if self.told.get("decodes"):
            self._missing()
        return answer

    def _missing(self) -> NoReturn:
        raise HatrackError(f"target {self.name!r} is the user's own, and {AGAIN}.")

    def judged(self) -> Judged:
        score, rises = self.told["judged"]
        return Judged(score, rises, None)

    def described(self) -> dict[str, Any]:
        return dict(self.told)


@dataclass(frozen=True)
class Missing:
    """A loss or a score of the user's, of which the name is left."""

    name: str
    larger_is_better: bool = True

    def __call__(self, *_: Any) -> NoReturn:
        raise HatrackError(f"the {self.name} that the task was learned with is the user's own, and {AGAIN}.")

    update = compute = __call__


def restored(told: Mapping[str, Any]) -> Target:
    """Return the target that `Target.described` has told of."""
    made = OURS.get(told["name"])
    if made is None:
        return Foreign(told["name"], told)
    target, own = made(**{f.name: told[f.name] for f in fields(made) if f.name in told}), told.get("own", ())
    return target.with_own(
        Missing("loss") if "loss" in own else None, Missing(*told["judged"]) if "score" in own else None
    )
