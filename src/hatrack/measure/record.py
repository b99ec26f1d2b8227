"""What a measure is: one record, which runs, studies, reports and lists all read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from hatrack.measure.accuracy import Matrix, diagonal
from hatrack.measure.scale import Scale, scale

Result: TypeAlias = Mapping[str, Any]
References: TypeAlias = Mapping[str, Any]
Unit: TypeAlias = Literal["share", "seconds", "minutes", "bytes", "count"]
NO_REFERENCES: References = MappingProxyType({})

REFERENCES: dict[str, tuple[str, Callable[[Matrix], list[Any]]]] = {
    "one": ("one", diagonal),
    "joint": ("joint", list),
    "random": ("random", diagonal),
    "ncl": ("sgd", list),
}
"""The runs, on the same benchmark, network and seed, that others are measured against: their method, and whether the
whole matrix counts or its diagonal."""
SERVES = {method: reference for reference, (method, _) in REFERENCES.items()}
"""Which reference a run of a method is."""


@dataclass(frozen=True)
class Measure:
    """A figure of a run, and every word that is said about it.

    `of(result, **references)` is called with what result.json holds and the accuracies of the reference runs that it
    `needs` (see REFERENCES), and returns None where the run has no such value. With `per_task` it also exists after
    every task (`acc@3`): `of` is then called with what there was of all lists after that task. `of_task` and
    `of_layer`, where there are any, give it of one task (`acc1`) or layer (`capacity:conv1`).
    """

    name: str
    title: str
    meaning: str
    of: Callable[..., float | None]
    needs: tuple[str, ...] = ()
    per_task: bool = True
    of_task: Callable[[Result, int], float | None] | None = None
    of_layer: Callable[[Result, str], float | None] | None = None
    larger_is_better: bool = True
    bounds: tuple[float | None, float | None] = (0.0, 1.0)
    unit: Unit = "share"
    scored: Literal["no", "level", "gain"] = "no"
    """Whether it is in the unit of the tasks' scores: as high as these, or a difference, to be better being above 0."""
    stored: Literal["no", "end", "each"] = "no"
    """Whether a run writes it into its result.json: at the end, or after each task too. Else it is taken when shown."""

    @property
    def said(self) -> str:
        """Title and meaning in one line."""
        return f"{self.title}: {self.meaning}"

    @property
    def against(self) -> list[str]:
        """The methods whose runs it is taken against."""
        return [REFERENCES[need][0] for need in self.needs]

    @property
    def forms(self) -> list[str]:
        """How it can be asked for; t stands for the number of a task."""
        forms = {"": True, "@t": self.per_task, "1": self.of_task is not None, ":LAYER": self.of_layer is not None}
        return [self.name + form for form, exists in forms.items() if exists]

    def on(self, tasks: Iterable[Mapping[str, Any]]) -> Measure:
        """Return the record for tasks of a result: name, bounds and direction are those of their scores."""
        found = scale(tasks)
        if self.scored == "no" or found == Scale():
            return self
        words = replace(self, title=found.put(self.title), meaning=found.put(self.meaning))
        if self.scored == "level":
            return replace(words, bounds=found.bounds, larger_is_better=found.larger_is_better)
        return words if found.shares else replace(words, bounds=(None, None))

    def value(self, result: Result, references: References = NO_REFERENCES) -> float | None:
        """Return it; None where the run has no such value, or a reference that it needs is not at hand."""
        if not set(self.needs) <= set(references):
            return None
        found = self.of(result, **{need: references[need] for need in self.needs})
        return None if found is None else float(found)


def after(result: Result, count: int) -> dict[str, Any]:
    """Return what there was of a result, or of references, after `count` tasks: every list has an entry a task."""
    return {key: _first(value, count) if isinstance(value, list) else value for key, value in result.items()}


def _first(values: list[Any], count: int) -> list[Any]:
    return [value[:count] if isinstance(value, list) else value for value in values[:count]]
