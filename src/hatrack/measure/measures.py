"""Every measure there is, and the figures that a run stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from hatrack.errors import HatrackError, unknown
from hatrack.measure.accuracy import (
    Matrix,
    average_accuracy,
    backward_transfer,
    difference_to_ncl,
    forgetting,
    forward_transfer,
)
from hatrack.measure.ratio import rho
from hatrack.measure.record import REFERENCES, Measure, Result, Unit, after
from hatrack.measure.scale import Scale, kinds, scale
from hatrack.registry import Registry


def _of_matrix(figure: Callable[..., float | None]) -> Callable[..., float | None]:
    """Make a function of the score matrix one of a result; without a value where something was not measured."""

    def of(result: Result, **references: Any) -> float | None:
        matrix = result["accuracy"]
        return None if any(None in row for row in matrix) else figure(matrix, **references)

    return of


def _level(figure: Callable[..., float | None]) -> Callable[..., float | None]:
    """The same of a mean over tasks; without a value where these are scored by several things."""

    def of(result: Result, **references: Any) -> float | None:
        return _of_matrix(figure)(result, **references) if _scale(result).alike else None

    return of


def _gain(figure: Callable[..., float | None]) -> Callable[..., float | None]:
    """The same of differences: to be better is above 0, also where a smaller score is better."""

    def of(result: Result, **references: Any) -> float | None:
        if _scale(result).larger_is_better:
            return _level(figure)(result, **references)
        turned = {name: _negated(run) for name, run in references.items()}
        return _level(lambda matrix, **runs: figure(_negated(matrix), **runs))(result, **turned)

    return of


def _scale(result: Result) -> Scale:
    return scale(result.get("tasks") or ())


def _negated(scores: Any) -> Any:
    return [_negated(one) for one in scores] if isinstance(scores, list | tuple) else -scores


def _weighted(
    kind: Callable[..., Callable[..., float | None]], figure: Callable[..., float | None]
) -> Callable[[Result], float | None]:
    """Give the figure the sizes of the test sets; without a value where one is not known or empty."""

    def of(result: Result) -> float | None:
        sizes = [task.get("test") for task in result["tasks"]]
        return kind(partial(figure, sizes=sizes))(result) if all(sizes) else None

    return of


def _ratio(accuracy: Matrix, joint: Matrix, random: Sequence[float]) -> float | None:
    return rho(accuracy, joint, random)[-1]


def _on_task(result: Result, task: int) -> float | None:
    row: Sequence[float | None] = result["accuracy"][-1]
    return row[task - 1] if task <= len(row) else None


def _share(field: str) -> Callable[..., float | None]:
    """Read the last share of a result's field: in all, or of a layer."""

    def of(result: Result, layer: str | None = None) -> float | None:
        share = (result.get(field) or [None])[-1]
        found: Mapping[str, float] = {} if share is None else share["layers"] if layer else share
        return found.get(layer or "total")

    return of


def _fact(name: str) -> Callable[[Result], float | None]:
    """Read what a method counted at its last task."""
    return lambda result: (result.get("facts") or [{}])[-1].get(name)


_DIFFERENCE = (-1.0, 1.0)
_UNBOUNDED = (None, None)
_OFTEN = "share of the parameters for which SPG’s cross-head importance (CHI) is the larger one"
_MUCH = "how much larger SPG’s cross-head importance (CHI) is, over the parameters for which it is"


def _stored(name: str, title: str, meaning: str, of: Callable[..., float | None], **more: Any) -> Measure:
    """Make a measure that every run stores in its result.json."""
    return Measure(name, title, meaning, of, **{"stored": "end", **more})


def _chi(name: str, above: str, meaning: str) -> Measure:
    return Measure(name, f"CHI above the {above}", meaning, _fact(name))


def _taken(name: str, title: str, meaning: str) -> Measure:
    """Make a measure of how much of the network is taken; in all, and layer by layer."""
    return Measure(name, title, meaning, _share(name), of_layer=_share(name), larger_is_better=False)


def _free(name: str, title: str, meaning: str, of: Callable[[Mapping[str, Any]], float | None], **more: Any) -> Measure:
    """Make a measure of answers to samples whose task is not named, from what the result holds of them."""

    def value(result: Result) -> float | None:
        free = result.get("free")
        return None if free is None else of(free)

    return _stored(name, title, meaning, value, per_task=False, **more)


def _mean(values: Sequence[float | None] | None) -> float | None:
    there = [value for value in values or () if value is not None]
    return fmean(there) if there else None


def _cost(name: str, title: str, meaning: str, unit: Unit) -> Measure:
    """Make a measure of the whole run, which stands in its result.json under the same name."""
    cost: dict[str, Any] = {"per_task": False, "larger_is_better": False, "bounds": (0.0, None), "unit": unit}
    return Measure(name, title, meaning, lambda result: result.get(name), **cost)


# fmt: off
_TABLE = (
    _stored("acc", "average accuracy", "test accuracy at the end, averaged over all tasks",
            _level(average_accuracy), of_task=_on_task, scored="level"),
    _stored("bwt", "backward transfer", "mean change of a task’s accuracy since it was learned",
            _gain(backward_transfer), bounds=_DIFFERENCE, scored="gain"),
    _stored("fwt", "forward transfer", "what earlier tasks gave a new one, against learning it alone",
            _gain(forward_transfer), needs=("one",), bounds=_DIFFERENCE, scored="gain"),
    _stored("forgetting", "forgetting", "mean loss of accuracy on old tasks, against the best there was",
            _gain(forgetting), larger_is_better=False, bounds=_DIFFERENCE, scored="gain"),
    _stored("rho", "forgetting ratio ρ", "0 is as good as joint training, −1 no better than guessing",
            _of_matrix(_ratio), needs=("joint", "random"), bounds=_UNBOUNDED, stored="each"),
    _stored("ncl", "difference to NCL", "average accuracy less that of plain fine-tuning (naive continual learning)",
            _gain(difference_to_ncl), needs=("ncl",), bounds=_DIFFERENCE, scored="gain"),
    _stored("acc_weighted", "average accuracy, weighted", "each task by the size of its test set",
            _weighted(_level, average_accuracy), scored="level"),
    _stored("bwt_weighted", "backward transfer, weighted", "each task by the size of its test set",
            _weighted(_gain, backward_transfer), bounds=_UNBOUNDED, scored="gain"),
    _free("acc_free", "accuracy, no task", "task not named: it and the class are both right, averaged over tasks",
          lambda free: _mean(free["accuracy"])),
    _free("task_acc", "task found", "how often that of a sample is, when nobody names it, averaged over tasks",
          lambda free: _mean([row[task] for task, row in enumerate(free["found"])])),
    _free("none_auroc", "AUROC of none of these", "each task unseen in turn, against the others’ samples",
          lambda free: free["auroc"]),
    _taken("capacity", "capacity used", "share of the weights that the tasks so far use"),
    _taken("blocked", "parameters blocked", "share of the parameters that no update reaches any more"),
    _chi("F-each", "task’s own importance, how often", _OFTEN),
    _chi("G-each", "task’s own importance, by how much", _MUCH),
    _chi("F-total", "accumulated importance, how often", _OFTEN),
    _chi("G-total", "accumulated importance, by how much", _MUCH),
    _cost("seconds", "time", "of all tasks together", "seconds"),
    replace(_cost("minutes", "time in minutes", "of all tasks together", "minutes"),
            of=lambda result: None if result.get("seconds") is None else result["seconds"] / 60),
    _cost("memory", "peak memory", "on a GPU what tensors held at most, on a CPU the whole process", "bytes"),
    _cost("parameters", "parameters", "what all tasks are answered with: networks, columns, heads; masks not", "count"),
    _cost("learnable", "learnable parameters", "what training moves for all tasks together, masks too (SPG’s Table 10)",
          "count"),
    _cost("kept", "kept for the tasks besides network and heads", "masks, importances, own weights, samples", "bytes"),
)
# fmt: on


def _measure(found: Any, name: str, where: str) -> Measure:
    """Return a record of somebody else's under the name that it has here."""
    if not isinstance(found, Measure):
        raise HatrackError(
            f"{where} must be a record, hatrack.measure.Measure(name, title, meaning, of), got {found!r:.99}."
        )
    if found.stored != "no":
        raise HatrackError(f"{where}: only hatrack's own measures stand in result.json; leave stored= out.")
    if unknown_runs := [need for need in found.needs if need not in REFERENCES]:
        raise unknown(f"reference run of {where}", unknown_runs[0], REFERENCES)
    return replace(found, name=name)


MEASURES: Registry[Measure] = Registry("measure", {measure.name: measure for measure in _TABLE}, _measure)


def missing(measure: str, have: Collection[str]) -> tuple[str, ...]:
    """Return the reference runs that `measure` needs and that are not among those at hand."""
    return tuple(run for run in MEASURES.find(measure).needs if run not in have)


def summary(
    accuracy: Matrix,
    *,
    one: Sequence[float] | None = None,
    joint: Matrix | None = None,
    random: Sequence[float] | None = None,
    ncl: Matrix | None = None,
    tasks: Sequence[Mapping[str, Any]] | None = None,
    free: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return every measure that a run stores, None where it does not exist yet, and in `missing` what such a one needs.

    `rho` is ρ^{≤T}; `rho_each` is ρ^{≤t} for every t. `one` and `random` are scores a task, `joint` and `ncl`
    matrices. `tasks`, as result.json has them, say what the scores are (accuracies without a word), and how many test
    samples there are, for SPG's weighted figures; `free`, how tasks are found when they are not named. `undefined`,
    where tasks are scored by several things, says why means over tasks have no value.
    """
    result: dict[str, Any] = {
        "accuracy": list(accuracy),
        "tasks": list(tasks if tasks is not None else [{}] * len(accuracy)),
        "free": free,
    }
    runs = {"one": one, "joint": joint, "random": random, "ncl": ncl}
    given = {name: run for name, run in runs.items() if run is not None}
    figures: dict[str, Any] = {}
    waiting: dict[str, list[str]] = {}
    for name, measure in MEASURES.own.items():
        if measure.stored == "no":
            continue
        figures[name] = measure.value(result, given)
        if lacking := missing(name, given):
            waiting[name] = list(lacking)
        if measure.stored == "each":
            counts = range(1, len(accuracy) + 1)
            values = [measure.value(after(result, count), after(given, count)) for count in counts]
            figures[f"{name}_each"] = None if lacking else values
    undefined = {}
    if not _scale(result).alike:
        why = f"no mean over tasks that are scored by {kinds(result['tasks'])}"
        undefined = {name: why for name in figures if name in MEASURES.own and MEASURES.own[name].scored != "no"}
    return {**figures, "missing": waiting, **({"undefined": undefined} if undefined else {})}
