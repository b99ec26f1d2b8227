"""What a picture can be drawn of: a run's folder, its result, or a learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from hatrack import __version__
from hatrack.errors import HatrackError
from hatrack.report.read import Epoch, Result, Run, by_kind, parse, read, require_whole, run_of


@runtime_checkable
class HasMatrix(Protocol):
    """What a learner must have: its scores. What else it has of a hatrack.Learner is taken too."""

    def matrix(self) -> Sequence[Sequence[float | None]]:
        """Return the test score on tasks 1..t after each task t."""


Source: TypeAlias = str | Path | Mapping[str, Any] | Run | HasMatrix


def as_run(source: Source, file: str = "") -> Run:
    """Return what there is to draw; `file`: what a run's folder must be given for, since no result holds it."""
    if isinstance(source, Run):
        return source
    if isinstance(source, str | Path):
        return read(Path(source))
    if isinstance(source, HasMatrix):
        return _of_learner(source)
    if not isinstance(source, Mapping):
        raise HatrackError(f"a picture is drawn of a run's folder, its result or a learner, got {source!r:.99}.")
    if file:
        raise HatrackError(f"a result does not hold what is in {file}: give the run's folder.")
    return _of_result(source)


def _of_result(given: Mapping[str, Any]) -> Run:
    where = ("the result", "give what result.json holds")
    result = parse(Result, given, *where)
    require_whole(result, *where)
    return run_of(result)


def _of_learner(learner: Any) -> Run:
    rows = [list(row) for row in learner.matrix()]
    tasks = list(getattr(learner, "tasks", ()))[: len(rows)] or [None] * len(rows)
    if not rows:
        raise HatrackError("the learner has learned no task yet, so there is nothing to draw.")
    gone, older = (getattr(learner, numbers, ()) for numbers in ("released", "older"))
    known = [
        {"name": getattr(t, "name", f"task {i}"), "classes": getattr(t, "classes", 1)}
        | {"released": i - 1 in gone, "older": i - 1 in older}
        | _predicted(t)
        for i, t in enumerate(tasks, start=1)
    ]
    method = getattr(getattr(learner, "method", None), "name", type(learner).__name__)
    asked = ("capacity", "reuse", "masks", "weight_masks")
    capacity, reuse, gates, weights = (getattr(learner, what, lambda: None)() for what in asked)
    run = _of_result({
        "schema": 1,
        "hatrack": __version__,
        "spec": {"method": method, "benchmark": "", "net": "", "seed": getattr(learner, "seed", 0)},
        "tasks": known,
        "accuracy": rows,
        "metrics": {},
        "capacity": capacity,
        "growth": [asdict(step) for step in getattr(learner, "growths", ())] or None,
        "reuse": reuse,
    })  # fmt: skip
    stored = {key: mask.numpy() for key, mask in ((gates or {}) | (weights or {})).items()}
    masks, fields = by_kind(stored, run.result, "what the learner returns as masks")
    epochs = (vars(epoch) for task in getattr(learner, "history", ()) for epoch in task.epochs)
    return replace(
        run,
        epochs=[parse(Epoch, epoch, "the learner's history", "it is no hatrack.Learner's") for epoch in epochs],
        masks=masks,
        weights=fields,
    )


def _predicted(task: Any) -> dict[str, Any]:
    target = getattr(task, "target", None)
    return {} if target is None else dict(target.facts())
