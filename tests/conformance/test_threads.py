"""Asked from several threads while it learns, a learner answers as it always did, and learns as if nobody had asked."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from torch import Tensor, nn

import hatrack
from hatrack import Learner, Task
from hatrack.methods import METHODS
from saved import held

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")

MASKED = [name for name, method in METHODS.items() if method.guarantee]
ASKING = 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.2), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(96, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 16), nn.ReLU(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:2]


class Asking(Thread):
    """Asks the first task again and again, in another way each time, until told to stop."""

    def __init__(self, learner: Learner, task: Task, stop: Event) -> None:
        super().__init__(daemon=True)
        self.learner, self.task, self.stop = learner, task, stop
        self.x = task.test.first(30)
        self.expected = (learner.predict(self.x, 0).clone(), learner.evaluate(task, 0))
        self.asked, self.wrong = 0, 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.wrong += not torch.equal(self._bits(self.learner.predict(self.x, 0)), self._bits(self.expected[0]))
                if self.asked % 7 == 0:
                    self.wrong += self.learner.evaluate(self.task, 0) != self.expected[1]
                if self.asked % 11 == 0:
                    self.wrong += not self.learner.verify().tasks[0].ok
                self.asked += 1
        except BaseException as error:
            self.error = error

    @staticmethod
    def _bits(t: Tensor) -> Tensor:
        return t.contiguous().view(torch.int32)


@pytest.mark.parametrize("name", MASKED)
def test_answers_stay_right_under_load_and_harm_nothing(name: str, tasks: list[Task], tmp_path: Path) -> None:
    alone, learner = (Learner(network(), METHODS[name](), epochs=4, batch_size=16, device="cpu") for _ in range(2))
    for each in (alone, learner):
        each.learn(tasks[0])
    stop = Event()
    threads = [Asking(learner, tasks[0], stop) for _ in range(ASKING)]
    for thread in threads:
        thread.start()
    try:
        learner.learn(tasks[1])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [thread.error for thread in threads] == [None] * ASKING
    assert [thread.wrong for thread in threads] == [0] * ASKING
    assert min(thread.asked for thread in threads) > 20  # nobody was kept waiting till the end
    assert learner.verify().ok
    alone.learn(tasks[1])
    assert held(learner, tmp_path / "asked") == held(alone, tmp_path / "alone")
