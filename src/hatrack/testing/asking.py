"""Asked from several threads while it learns, a learner answers as it always did, and learns as if nobody had asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import torch
from torch import Tensor

from hatrack.data.task import Task
from hatrack.learn.learner import Learner
from hatrack.testing.behaviour import behaviour, require, require_same, require_unchanged
from hatrack.testing.case import Case, digits

ASKING = 3  # threads
EACH = 20  # questions at least: nobody is kept waiting till the end


def _ask(learner: Learner, task: Task, x: Tensor, logits: Tensor, accuracy: float, stop: Event) -> tuple[int, int]:
    """Ask for the first task in one way after another until told to stop; return how often, and how often in vain."""
    asked = wrong = 0
    while not stop.is_set():
        wrong += not torch.equal(learner.predict(x, 0).view(torch.int32), logits.view(torch.int32))
        if asked % 7 == 0:
            wrong += learner.evaluate(task, 0) != accuracy
        if asked % 11 == 0:
            wrong += not learner.verify().tasks[0].ok
        asked += 1
    return asked, wrong


@behaviour("answer for finished tasks while it learns, and learn as if nobody had asked", "residual")
def answers_while_it_learns(case: Case) -> str | None:
    if not case.promises:
        return "makes no promise"
    first, second, _ = digits()
    alone, learner = (case.learner(epochs=4, batch_size=16) for _ in range(2))
    for each in (alone, learner):
        each.learn(first)
    assert first.test is not None
    x, stop = first.test.first(30), Event()
    logits, accuracy = learner.predict(x, 0).clone(), learner.evaluate(first, 0)
    with ThreadPoolExecutor(ASKING) as threads:
        asking = [threads.submit(_ask, learner, first, x, logits, accuracy, stop) for _ in range(ASKING)]
        try:
            learner.learn(second)
        finally:
            stop.set()
    for answer in asking:
        require(answer.exception() is None, f"asked in another thread: {answer.exception()!r}")
        asked, wrong = answer.result()
        require(not wrong, f"{wrong} of {asked} answers were wrong")
        require(asked > EACH, f"only {asked} answers came while it learned")
    require_unchanged(learner)
    alone.learn(second)
    require_same(case.held(learner), case.held(alone), "asked while it learned")
    return None
