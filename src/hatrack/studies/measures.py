"""The measures that a study's table can show, by name, and what they are read from.

acc, bwt, fwt, forgetting, rho, ncl    at the end of the run (see hatrack.measure)
acc@3, rho@2, capacity@5               after that task, counted from 1
acc1@2                                 accuracy on task 1 alone after task 2
capacity:conv1@5                       of one layer
blocked, with the same forms           share of parameters that no update reaches any more
F-each@2, G-each, F-total, G-total     what SPG's cross-head importance adds
acc@half                               after half of the tasks
seconds, memory, parameters            of the whole run
kept                                   bytes kept for the tasks besides network and heads: masks, importances
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hatrack.errors import HatrackError
from hatrack.measure import NEEDS
from hatrack.measure.cross_head import FIGURES as _CHI

_OF_THE_RUN = ("seconds", "memory", "parameters", "kept")
_LAYERED = ("capacity", "blocked")
_PLAIN = (*NEEDS, "acc_weighted", "bwt_weighted", *_LAYERED, *_CHI, *_OF_THE_RUN)
_AFTER_A_TASK = ("acc", "rho", *_LAYERED, *_CHI)
HALF = -1  # stands for the middle of a sequence, whatever its length
_SMALLER_IS_BETTER = ("forgetting", *_LAYERED, *_OF_THE_RUN)
_FORM = re.compile(r"(?P<name>[A-Za-z_-]+)(?P<of>\d+)?(?::(?P<layer>[\w.]+))?(?:@(?P<after>\d+|half))?")


@dataclass(frozen=True)
class Measure:
    """One measure: its name, and where asked for, the task it is of, the layer, the task after which it is taken."""

    text: str
    name: str
    of: int | None = None
    layer: str | None = None
    after: int | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The references that it is taken against: one, joint, random, ncl."""
        return NEEDS.get(self.name, ())

    @property
    def tasks(self) -> int:
        """How many tasks a run must have for it to have a value."""
        return 2 if self.after == HALF else max(self.of or 1, self.after or 1)

    @property
    def sign(self) -> int:
        """1 where more is better, −1 where less is."""
        return -1 if self.name in _SMALLER_IS_BETTER else 1

    @property
    def share(self) -> bool:
        """Whether it is a figure between 0 and 1, or a difference of two such."""
        return self.name not in _OF_THE_RUN

    @property
    def bounded(self) -> bool:
        """Whether it is never more than 1; ρ is, where joint training does little better than guessing."""
        return self.share and self.name != "rho"

    def of_run(self, result: Mapping[str, Any]) -> float | None:
        """Return the measure of a run (what its result.json holds); None where the run has no such value."""
        if self.of is not None:
            row = _at(result["accuracy"], self.after)
            return None if row is None or self.of > len(row) else row[self.of - 1]
        if self.name in _CHI:
            facts = _at(result.get("facts") or [], self.after)
            return None if facts is None else facts.get(self.name)
        if self.name in _LAYERED:
            share = _at(result.get(self.name) or [], self.after)
            return None if share is None else share["layers"].get(self.layer) if self.layer else share["total"]
        if self.after is None:
            found = result.get(self.name) if self.name in result else result["metrics"].get(self.name)
            return None if found is None else float(found)
        if self.name == "acc":
            row = _at(result["accuracy"], self.after)
            return None if row is None or None in row else fmean(row)
        return _at(result["metrics"].get("rho_each") or [], self.after)  # type: ignore[no-any-return]


def _at(values: Any, after: int | None) -> Any:
    """Return the entry after a task (counted from 1), the last one without; None where there is none."""
    place = len(values) if after is None else len(values) // 2 if after == HALF else after
    return values[place - 1] if 1 <= place <= len(values) else None


def measure(text: str) -> Measure:
    """Read the name of a measure."""
    found = _FORM.fullmatch(text)
    name = found["name"] if found else ""
    if found is None or name not in _PLAIN:
        raise HatrackError(
            f"unknown measure {text!r}; accepted: {', '.join(_PLAIN)}; acc@t and the like after task t (or @half), "
            f"acc1@t of task 1, capacity:LAYER of a layer."
        )
    of = int(found["of"]) if found["of"] else None
    after = None if found["after"] is None else HALF if found["after"] == "half" else int(found["after"])
    wrong = (after is not None and name not in _AFTER_A_TASK) or (of is not None and name != "acc")
    if wrong or (found["layer"] and name not in _LAYERED) or 0 in (of, after):
        raise HatrackError(f"measure {text!r} does not exist: {name!r} is not known for single tasks or layers so.")
    if of is not None and after is not None and 0 < after < of:
        raise HatrackError(f"measure {text!r} does not exist: task {of} is not yet learned after task {after}.")
    return Measure(text, name, of, found["layer"], after)
