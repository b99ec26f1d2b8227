"""A measure as it is asked for by name: `acc`, `fwt@3` after a task, `acc1@2` of one, `blocked:conv1@half`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hatrack.errors import HatrackError
from hatrack.measure.measures import MEASURES
from hatrack.measure.record import NO_REFERENCES, Measure, References, Result, after

HALF = -1  # stands for the middle of a sequence, whatever its length
_FORM = re.compile(r"(?P<name>.*?)(?P<of>\d+)?(?::(?P<layer>[\w.]+))?")


@dataclass(frozen=True)
class Reading:
    """A measure, and where asked for, the task it is of, the layer, the task after which it is taken."""

    text: str
    measure: Measure
    of: int | None = None
    layer: str | None = None
    after: int | None = None

    @property
    def tasks(self) -> int:
        """How many tasks a run must have for it to have a value."""
        return 2 if self.after == HALF else max(self.of or 1, self.after or 1)

    @property
    def title(self) -> str:
        """What it is, in words."""
        said = self.measure.title + (f" of {self.layer}" if self.layer else "")
        if self.of is not None:
            said = f"{said.removeprefix('average ')} on task {self.of}"
        if self.after is None:
            return said
        return said + (" after half of the tasks" if self.after == HALF else f" after task {self.after}")

    def on(self, tasks: Iterable[Mapping[str, Any]]) -> Reading:
        """Return it for tasks of a result (see Measure.on)."""
        return replace(self, measure=self.measure.on(tasks))

    def value(self, result: Result, references: References = NO_REFERENCES) -> float | None:
        """Return it for a run (what its result.json holds); None where the run has no such value."""
        count = len(result["accuracy"])
        place = count if self.after is None else count // 2 if self.after == HALF else self.after
        if not 1 <= place <= count:
            return None
        stored = self._stored(result["metrics"], place)
        if stored is not None:
            return stored
        if self.after is not None:
            result, references = after(result, place), after(references, place)
        if self.of is not None and self.measure.of_task is not None:
            return self.measure.of_task(result, self.of)
        if self.layer is not None and self.measure.of_layer is not None:
            return self.measure.of_layer(result, self.layer)
        return self.measure.value(result, references)

    def _stored(self, metrics: Result, place: int) -> float | None:
        if self.of is not None or self.layer is not None or self.measure.stored == "no":
            return None
        if self.after is None:
            found: float | None = metrics.get(self.measure.name)
            return found
        each = metrics.get(f"{self.measure.name}_each") or []
        return each[place - 1] if place <= len(each) else None


def reading(text: str) -> Reading:
    """Read the name of a measure with its form."""
    name, at, when = text.partition("@")
    form = _FORM.fullmatch(name)
    digits = layer = None
    if name not in MEASURES and form is not None and form["name"] in MEASURES:
        name, digits, layer = form.groups()
    if name not in MEASURES or (at and when != "half" and not re.fullmatch("[0-9]+", when)):
        raise HatrackError(
            f"unknown measure {text!r}; accepted: {', '.join(MEASURES)}; acc@t and the like after task t (or @half), "
            f"acc1@t of task 1, capacity:LAYER of a layer (see: hatrack list measures)."
        )
    measure = MEASURES[name]
    of = int(digits) if digits else None
    place = None if not at else HALF if when == "half" else int(when)
    wrong = (at and not measure.per_task) or (of is not None and measure.of_task is None)
    if wrong or (layer and measure.of_layer is None) or 0 in (of, place):
        raise HatrackError(f"measure {text!r} does not exist: {name!r} is not known for single tasks or layers so.")
    if of is not None and place is not None and 0 < place < of:
        raise HatrackError(f"measure {text!r} does not exist: task {of} is not yet learned after task {place}.")
    return Reading(text, measure, of, layer, place)
