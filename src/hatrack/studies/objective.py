"""How good a trial of the search is: average accuracy at the end on *validation* samples, the mean over seeds.

The test parts are taken away before anything is learned; the validation part stands in their place. A trial reports
after every task, and is given up when the answer is True; what the library says meanwhile is told as lines of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.runs.setup import prepare
from hatrack.runs.spec import Spec
from hatrack.studies.notices import notices_to


@dataclass(frozen=True)
class Trial:
    """Settings to be tried: one spec a seed."""

    number: int
    specs: Sequence[Spec]


@dataclass(frozen=True)
class Report:
    """The average validation accuracy over the tasks so far, after step number `step` (tasks of all seeds counted).

    `early`: in the first half of the first seed's tasks, where forgetting does not show yet.
    """

    step: int
    value: float
    early: bool = False


def score(trial: Trial, tell: Callable[[Any], Any]) -> float | None:
    """Return the trial's figure; None where it was given up on the way."""
    finals, step = [], 0
    with notices_to(tell):
        for spec in trial.specs:
            setup = prepare(spec)
            tasks = [validation_only(task) for task in setup.tasks]
            for task in tasks:
                tested = setup.learner.learn(task, progress=False).accuracy
                reached = fmean(accuracy for accuracy in tested if accuracy is not None)
                step += 1
                if tell(Report(step, reached, early=2 * step < len(tasks))):
                    return None
            finals.append(reached)
    return fmean(finals)


def validation_only(task: Task) -> Task:
    """Return the task with its validation part in place of its test part."""
    if task.valid is None:
        raise HatrackError(f"tuning goes by validation accuracy, but task {task.name!r} has no validation part.")
    # Without `about`, which counts test samples.
    return Task(task.name, task.train, task.valid, task.valid, target=task.target, inputs=task.inputs)
