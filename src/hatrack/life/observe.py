"""Streams that do not say which task a batch is of: it is one that is known, or it begins a new one.

    a batch is of a known task   where most of its samples find that one task (learn/which), each within the share of
                                 false alarms; what is known already is left as it is
    of none                      else: it is put aside, and when enough samples are, they are learned as a new task

So a batch is taken to be of one task, and what is put aside between two known batches to be of one as well: two new
tasks that follow each other before either is learned become one. Samples that are put aside are not saved.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hatrack.data.inputs import as_inputs, as_tensor
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.refusals import whole
from hatrack.targets import Classification
from hatrack.tree import count, mapped

if TYPE_CHECKING:
    from hatrack.learn.learner import Learner


@dataclass(frozen=True)
class Observed:
    """What became of a batch.

    task     the task that it was taken for; None while what is put aside is not enough for a new one
    new      whether that task was learned just now
    share    of its samples that found the task that most of them found
    aside    samples that are put aside now
    """

    task: str | None
    new: bool
    share: float
    aside: int


def observe(learner: Learner, x: Any, y: Any, enough: int, score: str, false_alarms: float) -> Observed:
    """Take a batch for a known task, or put it aside and learn a new one of what is there."""
    enough = whole("enough", enough, least=2)
    given, labels = as_inputs(x), as_tensor(y, "observe: labels")
    if labels.ndim != 1 or labels.is_floating_point() or len(labels) != count(given) or not len(labels):
        raise HatrackError(
            f"observe takes a batch of inputs and as many integer labels, got {count(given)} inputs and labels of "
            f"shape {tuple(labels.shape)} and {labels.dtype}."
        )
    share = 0.0
    if learner.finished:
        found = Counter(learner.predict(given, score=score, false_alarms=false_alarms).task)
        del found[None]
        task, most = found.most_common(1)[0] if found else (None, 0)
        share = most / len(labels)
        if share > 0.5:
            return Observed(task, False, share, sum(len(kept) for _, kept in learner._aside))
    learner._aside.append((mapped(lambda part: part.detach().cpu().clone(), given), labels.cpu().long()))
    aside = sum(len(kept) for _, kept in learner._aside)
    if aside < enough:
        return Observed(None, False, share, aside)
    name = next(
        name for number in range(len(learner.tasks) + 1) if (name := f"observed {number}") not in _names(learner)
    )
    learner.learn(_task(name, learner._aside))
    learner._aside = []
    return Observed(name, True, share, 0)


def _names(learner: Learner) -> set[str]:
    return {learned.name for learned in learner.tasks}


def _task(name: str, batches: list[tuple[Any, Tensor]]) -> Task:
    """Return the samples as a task, whose classes are called as the labels were."""
    inputs, labels = zip(*batches, strict=True)
    classes, y = torch.cat(labels).unique(return_inverse=True)
    x = mapped(lambda *parts: torch.cat(parts), *inputs)
    return Task(name, (x, y), target=Classification(names=[str(label) for label in classes.tolist()]))
