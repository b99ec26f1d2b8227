"""How well tasks are found when nobody names them, over the test samples of all: one pass a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from hatrack.data.feed import Feed
from hatrack.data.inputs import Inputs
from hatrack.learn.fit import evaluation_batch
from hatrack.learn.machine.cpu.mode import fast
from hatrack.learn.which.answer import FALSE_ALARMS, choose
from hatrack.learn.which.evidence import evidence
from hatrack.learn.which.scores import DEFAULT
from hatrack.measure.auroc import auroc
from hatrack.modes import undisturbed
from hatrack.targets import Classification

if TYPE_CHECKING:
    from hatrack.learn.learner import Learner


def measured(learner: Learner, score: str = DEFAULT) -> dict[str, Any] | None:
    """Return what result.json says of it; None where a task has no statistics or test samples, or other inputs.

    found     a row a task: the share of its test samples that each task is chosen for, right where it is its own; None
              in the rows and columns of released tasks and older versions, as in all that has a figure a task
    accuracy  a figure a task: the share whose task and class are both right; None where a task is of no classes
    none      a figure a task: the share that is called none of these
    auroc     how well none of these is told: the samples of each task in turn against those of all others, judged by
              the statistics of the others alone, for which it is unseen; None with one task
    """
    numbers = list(learner._numbers().values())
    tasks = [learner.tasks[number] for number in numbers]
    known = [learned.which for learned in tasks if learned.which is not None]
    if not tasks or len(known) < len(tasks) or not learner._tests.keys() >= set(numbers):
        return None
    if any(learned.kind.shapes != tasks[0].kind.shapes for learned in tasks):
        return None
    prepare = [learned.inputs.on(learner.device) for learned in tasks]
    classes = all(isinstance(learned.target, Classification) for learned in tasks)
    found: list[list[float]] = []
    right, none, values = list[float](), list[float](), list[NDArray[np.floating]]()
    for index, (number, learned) in enumerate(zip(numbers, tasks, strict=True)):
        part = learner._tests[number]._replace(inputs=Inputs(ids=learned.inputs.ids))
        feed, choices, hits = Feed([part], learner.device, learner.workers), [], []
        for batch in feed.batches(evaluation_batch(feed, learner.device)):
            with undisturbed(), torch.no_grad(), learner.model.alone(), fast(learner.device):
                seen = [evidence(learner.method, to(batch.x), t) for t, to in zip(numbers, prepare, strict=True)]
            fits = [which.fit(each) for which, each in zip(known, seen, strict=True)]
            choices.append(choose(score, fits, known, FALSE_ALARMS))
            if isinstance(learned.target, Classification):
                hits.append(seen[index].logits.argmax(1) == learned.target.strata(batch.y))
        chosen = torch.cat([choice.task for choice in choices]).cpu()
        found.append((torch.bincount(chosen, minlength=len(tasks)).double() / len(chosen)).tolist())
        none.append(1 - float(torch.cat([choice.known for choice in choices]).double().mean()))
        values.append(torch.cat([choice.values for choice in choices]).cpu().numpy())
        if classes:
            right.append(float(((chosen == index) & torch.cat(hits).cpu()).double().mean()))

    def spread(figures: Sequence[Any], blank: Any) -> list[Any]:
        """Put figures in the places of their tasks."""
        places = dict(zip(numbers, figures, strict=True))
        return [places.get(number, blank) for number in range(learner.finished)]

    told = [_told(values, left_out) for left_out in range(len(tasks))] if len(tasks) > 1 else []
    return {
        "score": score,
        "found": spread([spread(row, None) for row in found], [None] * learner.finished),
        "accuracy": spread(right, None) if classes else None,
        "none": spread(none, None),
        "auroc": float(np.mean(told)) if told else None,
    }


def _told(values: list[NDArray[np.floating]], left_out: int) -> float:
    """Return the AUROC of the samples of a task against those of the others, all judged by the others."""
    nearest = [np.delete(each, left_out, axis=1).min(1) for each in values]
    return auroc(np.concatenate([*nearest[:left_out], *nearest[left_out + 1 :]]), nearest[left_out])
