"""result.json: the outcome of a finished run. Apart from times and memory it is a function of the spec alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from torch import Tensor

from hatrack import __version__, seal
from hatrack.data.task import Task
from hatrack.learn.learner import Learner
from hatrack.learn.which.measured import measured
from hatrack.measure import scale, summary

SCHEMA = 1


def masks_of(learner: Learner) -> dict[str, Tensor] | None:
    """Return what masks.safetensors holds: gates of units, or else which weights tasks use."""
    gates = learner.masks()
    return learner.weight_masks() if gates is None else gates


def assemble(
    learner: Learner,
    spec: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    lines: Sequence[Mapping[str, Any]],
    seconds: float,
) -> dict[str, Any]:
    """Return what result.json holds, given the records of the tasks; a field that the method has no value for is None.

    `blocked`, `facts` and `histograms` have an entry a task, as `capacity` has; `memory` is the peak in bytes, that of
    runs side by side in this process included; `kept` what the tasks left behind besides network and heads, in bytes;
    `free` how tasks are found when they are not named; `verified` what was compared once all was learned, and whether
    it was what it had been.
    """
    accuracy = [line["accuracy"] for line in lines]
    marks = dict.fromkeys(learner.released, "released") | dict.fromkeys(learner.older, "older")
    tasks = [{**task, marks[t]: True} if t in marks else task for t, task in enumerate(tasks)]
    free = measured(learner)
    blocked, facts, histograms = ([line.get(key) for line in lines] for key in ("blocked", "facts", "histograms"))
    return {
        "schema": SCHEMA,
        "hatrack": __version__,
        "spec": dict(spec),
        "tasks": tasks,
        "accuracy": accuracy,
        "metrics": _metrics(learner, accuracy, tasks, free),
        "free": free,
        "capacity": learner.capacity(),
        "growth": [asdict(step) for step in learner.growths] or None,
        "reuse": learner.reuse(),
        "blocked": blocked if any(blocked) else None,
        "facts": facts if any(facts) else None,
        "histograms": histograms if any(histograms) else None,
        "guarantee": learner.method.promises(),
        "verified": learner.verify().numbers(),
        "parameters": learner.parameters_count,
        "learnable": learner.learnable_count,
        "seconds": seconds,
        "memory": max((line.get("memory", 0) for line in lines), default=0),
        "kept": learner.kept_bytes(),
        "device": spec["device"],
    }


def _metrics(
    learner: Learner,
    accuracy: Sequence[Sequence[float | None]],
    tasks: Sequence[Mapping[str, Any]],
    free: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return what a run stores of its measures; of released tasks there is no score, and so no mean over all."""
    tested = [[score for score in row if score is not None] for row in accuracy]
    if tested == list(accuracy):
        return summary(tested, tasks=tasks, free=free)
    there = [score for score in accuracy[-1] if score is not None]
    if not learner.released or not there or not scale(tasks).alike:
        return {}
    count = f"{len(learner.released)} of {len(tasks)} tasks were released"
    why = f"{count}; the mean of the scores that the others have at the end is {fmean(there):.4f}"
    return {"acc": None, "forgetting": None, "undefined": {"acc": why}}


def sizes(tasks: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the number of test samples of every task."""
    return [task["test"] for task in tasks]


def dumps(result: Mapping[str, Any]) -> str:
    """Return the text of result.json, a line a field, with its digest."""
    fields = {key: value for key, value in result.items() if key not in seal.BLANK} | seal.BLANK
    lines = (
        f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in fields.items()
    )
    return seal.sealed("{\n" + ",\n".join(lines) + "\n}\n")


def facts_of(task: Task) -> dict[str, Any]:
    """Return the task's name, the sizes of its parts, all else it says about itself, and what it predicts."""
    parts = {"train": task.train, "valid": task.valid, "test": task.test}
    counts = {name: 0 if part is None else len(part) for name, part in parts.items()}
    return {"name": task.name, "classes": task.classes, **counts, **task.about, **task.target.facts()}
