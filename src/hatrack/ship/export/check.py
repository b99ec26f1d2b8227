"""Exported files held against the learner: loaded again, asked the same, and compared before anything is called done.

Answers may differ by rounding: by 1e-4 of the largest that was seen, and where they do, the largest answer of a sample
stays the same one unless two of the learner's lie nearer to one another than 1e-5 of that. int8 is judged by its
score alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hatrack.errors import HatrackError, one_line
from hatrack.learn.scoring import Scoring
from hatrack.masks.cutting import WITHIN
from hatrack.ship.export.samples import Samples
from hatrack.tree import at

if TYPE_CHECKING:
    from hatrack.learn.core import Core

ROUNDING = 1e-4  # of the largest answer
Ask = Callable[[Any], Tensor]


@dataclass
class Checked:
    """Scores by file, `learner` among them (None: without targets); the greatest difference by file, as a share."""

    scores: dict[str, float | None] = field(default_factory=dict)
    apart: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def checked(core: Core, index: int, samples: Samples, files: Mapping[str, Ask], judged: Mapping[str, Ask]) -> Checked:
    """Hold `files` against the learner on every sample, and score them; `judged` are scored only."""
    learned = core.tasks[index]
    axis = learned.target.units_axis or 1
    names = ["learner", *files, *judged]
    scoring = {} if samples.target is None else {name: Scoring(samples.target, learned.name) for name in names}
    found, largest = Checked(apart=dict.fromkeys(files, 0.0)), 0.0
    for number, (x, y) in enumerate(samples.batches()):
        with core.model.unrounded():
            answers = {"learner": core.predict(x, index).cpu()}
        ours = answers["learner"]
        largest = max(largest, float(ours.abs().max()))
        for name, ask in {**files, **judged}.items():
            where = f"task {learned.name!r}: {name}"
            answers[name] = _asked(ask, x, where)
            if name in files:
                found.apart[name] = max(found.apart[name], _compare(answers[name], ours, axis, largest, where))
            if name in files and number == 0:  # the free axis may have got stuck at another length
                _compare(_asked(ask, at(x, slice(1)), where), ours[:1], axis, largest, where)
        for name, score in scoring.items():
            assert y is not None
            score.add_answer(answers[name], y)
    found.scores = {name: scoring[name].figure() if scoring else None for name in names}
    return found


def _asked(ask: Ask, x: Any, where: str) -> Tensor:
    try:
        return ask(x)
    except Exception as error:  # a runtime's own kinds of errors
        raise HatrackError(
            f"{where} does not take the task's samples ({one_line(error):.200}); nothing was exported."
        ) from error


def _compare(answer: Tensor, reference: Tensor, axis: int, largest: float, where: str) -> float:
    """Return how far answers are apart, as a share of the largest; refuse more than rounding."""
    if answer.shape != reference.shape:
        raise HatrackError(
            f"{where} answers in another shape than the learner: {tuple(answer.shape)}, not {tuple(reference.shape)}; "
            f"nothing was exported."
        )
    apart = float((answer - reference).abs().max())
    if not apart <= ROUNDING * largest:
        raise HatrackError(
            f"{where} answers otherwise than the learner (apart by {apart:.2g}, the largest answer is {largest:.2g}, "
            f"{ROUNDING:g} of that may be rounding); nothing was exported."
        )
    if reference.shape[axis] > 1:
        top = reference.topk(2, dim=axis).values
        clear = top.select(axis, 0) - top.select(axis, 1) > WITHIN * largest
        other = (answer.argmax(axis) != reference.argmax(axis)) & clear
        if bool(other.any()):
            raise HatrackError(
                f"{where} chooses another answer than the learner for {int(other.sum())} of "
                f"{other.numel()}; nothing was exported."
            )
    return apart / largest if largest else 0.0
