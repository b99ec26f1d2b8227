"""Answers to samples whose task is not named: for each its task, or none of them, and what that task says.

A task is chosen by a score (scores.py): the one whose value is smallest. Where even that is larger than of all but a
share `false_alarms` of the task's own held-out samples, it is none of them. A score that goes by several tasks at once
has no such samples; then the default score of the chosen task decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from hatrack.data.inputs import as_inputs
from hatrack.errors import HatrackError
from hatrack.learn.which.evidence import evidence
from hatrack.learn.which.scores import ALONE, DEFAULT, Fit, scored
from hatrack.learn.which.statistics import Statistics
from hatrack.targets import Classification

if TYPE_CHECKING:
    from hatrack.learn.core import Core

FALSE_ALARMS = 0.05


@dataclass(frozen=True, eq=False)
class Answer:
    """What a learner says to samples without being told their task; every field has an entry a sample.

    task        the task's name; None where it is none of them
    label       what it is in the words of that task (its class; of a regression, its figures); None where `task` is
    logits      what `predict` gives with the nearest task named, with −∞ behind a head that is narrower than others
    confidence  how sure task and label are, 0 to 1
    known       False: none of these
    """

    task: list[str | None]
    label: list[Any]
    logits: Tensor
    confidence: Tensor
    known: Tensor

    def __len__(self) -> int:
        return len(self.task)


class Choice(NamedTuple):
    """The nearest task of every sample, whether it is near enough, how sure that is; and what the score gave."""

    task: Tensor
    known: Tensor
    sure: Tensor
    values: Tensor


def choose(score: str, fits: Sequence[Fit], kept: Sequence[Statistics], false_alarms: float) -> Choice:
    """Return which of the tasks each sample belongs to."""
    values = scored(score, fits)
    chosen = values.argmin(1)
    judged = score if score in ALONE else DEFAULT
    own = values if judged == score else scored(judged, fits)
    mean, deviation = (torch.stack(each) for each in zip(*(one.standards[judged] for one in kept), strict=True))
    apart = (own - mean) / deviation
    limits = torch.stack([each.limit(judged, false_alarms) for each in kept])
    place = chosen[:, None]
    known = own.gather(1, place).squeeze(1) <= limits[chosen]
    sure = torch.softmax(-apart, 1).gather(1, place).squeeze(1)
    return Choice(chosen, known, sure, values)


def answered(core: Core, x: Any, score: str, false_alarms: float) -> Answer:
    """Return what the finished tasks say to raw inputs, each prepared as a task's own were."""
    if isinstance(false_alarms, bool) or not isinstance(false_alarms, int | float) or not 0 <= false_alarms <= 1:
        raise HatrackError(f"false_alarms is a share of a task's own samples, 0 to 1, got {false_alarms!r}.")
    given, tasks = as_inputs(x), {number: core.tasks[number] for number in core._numbers().values()}
    if not tasks:
        raise HatrackError("no task is learned yet, so none can be found; call learner.learn(task) first.")
    blank = next((learned for learned in tasks.values() if learned.which is None), None)
    if blank is not None:
        raise HatrackError(
            f"task {blank.name!r} has no statistics by which its samples would be known: {_why(blank.target)}; name "
            f"the task: predict(x, task=…)."
        )
    found, objections = [], []
    for index, learned in tasks.items():
        assert learned.which is not None
        objection = learned.kind.objection(given, bool(learned.inputs.ids))
        if objection is not None:  # it takes other inputs, and is out of the question
            objections.append(f"task {learned.name!r}: {objection}")
            continue
        raw = learned.batch(given, core.device)
        with learned.fitting(given, raw):
            seen = evidence(core.method, learned.inputs.on(core.device)(raw), index)
        found.append((learned, learned.which, learned.which.fit(seen), learned.target.answer(seen.logits)))
    if not found:
        raise HatrackError(f"{objections[0]}.")
    choice = choose(score, [fit for _, _, fit, _ in found], [kept for _, kept, _, _ in found], false_alarms)
    return _worded(choice, [(learned.name, learned.target, answer) for learned, _, _, answer in found])


def _why(target: Any) -> str:
    if target.per_position:
        return f"{target.name} answers at every position of a sample"
    return "it was saved by an earlier version, or learned without its samples at hand (Hats.begin(…, data=…))"


def _worded(choice: Choice, tasks: Sequence[tuple[str, Any, Tensor]]) -> Answer:
    chosen, known = choice.task.tolist(), choice.known.tolist()
    widest = max(answer.flatten(1).shape[1] for _, _, answer in tasks)
    logits = tasks[0][2].new_full((len(chosen), widest), -torch.inf)
    label: list[Any] = [None] * len(chosen)
    sure = choice.sure.clone()
    for place, (_, target, answer) in enumerate(tasks):
        rows = (choice.task == place).nonzero().flatten()
        if not len(rows):
            continue
        own = answer[rows]
        logits[rows, : own.flatten(1).shape[1]] = own.flatten(1)
        if isinstance(target, Classification):
            sure[rows] *= own.double().softmax(1).amax(1)
        for row, word in zip(rows.tolist(), target.decode(own), strict=True):
            label[row] = word if known[row] else None
    names = [tasks[place][0] if near else None for place, near in zip(chosen, known, strict=True)]
    return Answer(names, label, logits, sure.float(), choice.known)
