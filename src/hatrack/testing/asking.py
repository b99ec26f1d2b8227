"""Asked from several threads while it learns, a learner answers as it always did, and learns as if nobody had asked."""

from __future__ import annotations

from threading import Event, Thread

import torch

from hatrack.data.task import Task
from hatrack.learn.learner import Learner
from hatrack.testing.behaviour import behaviour, require, require_same, require_unchanged
from hatrack.testing.case import Case, digits

ASKING = 3  # threads
EACH = 20  # questions at least: nobody is kept waiting till the end


class Asking(Thread):
    """Asks the first task again and again, in another way each time, until told to stop."""

    def __init__(self, learner: Learner, task: Task, stop: Event) -> None:
        super().__init__(daemon=True)
        assert task.test is not None
        self.learner, self.task, self.stop = learner, task, stop
        self.x = task.test.first(30)
        self.logits, self.accuracy = learner.predict(self.x, 0).clone(), learner.evaluate(task, 0)
        self.asked, self.wrong = 0, 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                logits = self.learner.predict(self.x, 0)
                self.wrong += not torch.equal(logits.view(torch.int32), self.logits.view(torch.int32))
                if self.asked % 7 == 0:
                    self.wrong += self.learner.evaluate(self.task, 0) != self.accuracy
                if self.asked % 11 == 0:
                    self.wrong += not self.learner.verify().tasks[0].ok
                self.asked += 1
        except BaseException as error:
            self.error = error


@behaviour("answer for finished tasks while it learns, and learn as if nobody had asked", "residual")
def answers_while_it_learns(case: Case) -> str | None:
    if not case.promises:
        return "makes no promise"
    first, second, _ = digits()
    alone, learner = (case.learner(epochs=4, batch_size=16) for _ in range(2))
    for each in (alone, learner):
        each.learn(first)
    stop = Event()
    threads = [Asking(learner, first, stop) for _ in range(ASKING)]
    for thread in threads:
        thread.start()
    try:
        learner.learn(second)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for thread in threads:
        require(thread.error is None, f"asked in another thread: {thread.error!r}")
        require(not thread.wrong, f"{thread.wrong} of {thread.asked} answers were wrong")
        require(thread.asked > EACH, f"only {thread.asked} answers came while it learned")
    require_unchanged(learner)
    alone.learn(second)
    require_same(case.held(learner), case.held(alone), "asked while it learned")
    return None
