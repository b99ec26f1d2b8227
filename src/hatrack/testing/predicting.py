"""Tasks of every target in one learner: a method learns, keeps and loads them, or says in a line which it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, poisson_nll_loss

from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.fit import Epoch
from hatrack.learn.learner import Learner
from hatrack.targets import Dense, Gathered, MultiLabel, Regression, Target
from hatrack.targets.scores import R2
from hatrack.testing.behaviour import behaviour, require, require_unchanged
from hatrack.testing.case import Case, differing, digits

SAMPLES, TESTED, EPOCHS, BATCH = 160, 40, 12, 10
CLEARLY = 0.05  # of the way from guessing to the best score there is


@dataclass(frozen=True)
class Counts(Target):
    """A target of one's own: how many of something, by a Poisson regression."""

    name: ClassVar[str] = "counts"
    score_name: ClassVar[str] = "R² of the rate"
    outputs: ClassVar[int] = 1

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return poisson_nll_loss(output[:, 0], y.float())

    def new_score(self) -> Gathered:
        return Gathered(_explained)


def _explained(output: Tensor, y: Tensor) -> float:
    score = R2()
    score.update(output.exp(), y[:, None].float())
    return score.compute()


@cache
def tasks() -> Sequence[Task]:
    """Return a task of each target on the digits 0 and 1: where its ink is, which it is, how round."""
    both = digits()[0]
    x, y = both.train.on(torch.device("cpu"))
    x = both.inputs.as_numbers(x)
    ink = avg_pool2d(x, 4)[:, 0] > x.mean()
    halves = x.flatten(1).unflatten(1, (2, -1)).mean(2)
    given: dict[str, tuple[Tensor, Target | None]] = {
        "in which corners": (ink.long(), Dense()),
        "which": (y, None),
        "where": (torch.stack([y == 1, y == 0, halves[:, 0] > halves[:, 1]], 1).float(), MultiLabel()),
        "how round": (1 - y.float() + halves[:, 0] / 4, Regression()),
        "how many holes": ((y == 0).long(), Counts()),
    }
    train, valid, test = slice(SAMPLES), slice(SAMPLES, SAMPLES + TESTED), slice(-TESTED, None)
    return [
        Task(name, *((x[rows], wanted[rows]) for rows in (train, valid, test)), target=target, inputs=both.inputs)
        for name, (wanted, target) in given.items()
    ]


@behaviour("learn every target, keep what it promises and load it the same, or refuse it in a line", "positions")
def learns_every_target(case: Case) -> str | None:
    learner = case.learner(epochs=EPOCHS, batch_size=BATCH)
    learned: list[Task] = []
    for task in tasks():
        if (line := _refusal(learner, task)) is not None:
            case.refused[task.target.name] = line
            continue
        learned.append(task)
        reached, judged = learner.evaluate(task, len(learned) - 1), task.target.judged()
        if learner.method.trains and judged.guess is not None:
            least = judged.guess + CLEARLY * (1 - judged.guess)
            require(reached > least, f"{task.target.name}: {judged.score} {reached:.3f}, next to guessing")
    require(bool(learned), f"refuses every target: {next(iter(case.refused.values()), '')}")
    require_unchanged(learner)
    _loads_the_same(case, learner, learned)
    return f"refused: {', '.join(case.refused)}" if case.refused else None


def _refusal(learner: Learner, task: Task) -> str | None:
    seen: list[Epoch] = []
    try:
        learner.learn(task, on_epoch=seen.append)
    except HatrackError as error:
        line = str(error)
        require(not seen, f"refused only after training had begun: {line}")
        require("\n" not in line and task.target.name in line, f"does not say in one line which target it is: {line}")
        return line
    return None


def _loads_the_same(case: Case, learner: Learner, learned: Sequence[Task]) -> None:
    learner.save(case.folder / "targets")
    loaded = case.loaded(case.folder / "targets", learned)
    x = learned[0].train.first(20)
    answers = [{task.name: each.predict(x, task.name) for task in learned} for each in (learner, loaded)]
    odd = differing(*answers)
    require(not odd, f"other answers after a load: {', '.join(odd)}")
    require_unchanged(loaded)
    for task in learned:
        require(loaded.evaluate(task, task.name) == learner.evaluate(task, task.name), f"{task.name}: another score")
