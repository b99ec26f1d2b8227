"""Being told of epochs and tasks, and stopping one."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

import hatrack
from hatrack import HAT, Epoch, HatrackError, Learner, Task, TaskHistory
from hatrack.methods import METHODS
from hatrack.nets import build
from hatrack.testing.case import held


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build("mlp", (1, 8, 8), widths=(12, 10), dropout=0.1, input_dropout=0.0)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:2]


class Watcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_begin(self, learner: Learner) -> None:
        self.told.append((learner.tasks[-1].name, learner.finished))

    def on_epoch(self, epoch: Epoch) -> None:
        self.told.append(epoch.epoch)

    def on_task(self, history: TaskHistory) -> None:
        self.told.append((history.name, len(history.epochs), history.accuracy))


def test_functions_and_objects_are_told_in_order(tasks: list[Task]) -> None:
    learner, watcher, functions = Learner(net(), METHODS["sgd"](), epochs=2), Watcher(), Watcher()
    returned = learner.learn(tasks[0], functions.on_epoch, functions.on_task, callback=watcher)
    assert functions.told == [1, 2, ("digits 0-1", 2, returned.accuracy)]
    assert watcher.told == [("digits 0-1", 0), *functions.told]


def test_an_object_that_listens_to_nothing_is_refused(tasks: list[Task]) -> None:
    with pytest.raises(HatrackError, match="with on_begin or on_epoch or on_task, got list"):
        Learner(net(), epochs=1).learn(tasks[0], callback=[])


def test_a_learned_task_can_be_saved_and_asked_from_on_task(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=2)
    learner.learn(tasks[0], on_task=lambda history: learner.save(tmp_path) or learner.verify())
    assert hatrack.load(tmp_path, net(1)).history == learner.history


def test_on_task_that_fails_undoes_the_task(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=2)
    learner.learn(tasks[0])
    before = held(learner, tmp_path / "a")

    def fail(_: TaskHistory) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        learner.learn(tasks[1], on_task=fail)
    assert held(learner, tmp_path / "b") == before


@pytest.mark.parametrize("name", ["hat", "sgd", "joint"])
def test_a_task_that_is_stopped_ends_as_if_its_schedule_had(name: str, tasks: list[Task], tmp_path: Path) -> None:
    short = Learner(net(), METHODS[name](), epochs=3, seed=0)
    long = Learner(net(), METHODS[name](), epochs=9, seed=0)
    for task in tasks:
        short.learn(task)
        long.learn(task, on_epoch=lambda epoch: long.stop() if epoch.epoch == 3 else None)
    assert [len(known.epochs) for known in long.history] == [3, 3]
    pages = [held(learner, tmp_path / str(learner.epochs)) for learner in (short, long)]
    assert pages[0].pop("epochs") == 3
    assert pages[1].pop("epochs") == 9
    assert [page.pop("sha256") for page in pages]  # of the pages with the epochs
    assert pages[0] == pages[1]


@pytest.mark.parametrize("name", sorted(name for name, method in METHODS.items() if method.trains))
def test_every_method_ends_in_order_when_it_is_stopped(name: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS[name](), epochs=6, seed=0)
    for task in tasks:
        learner.learn(task, on_epoch=lambda _: learner.stop())
    assert [len(known.epochs) for known in learner.history] == [1, 1]
    learner.save(tmp_path)
    for each in (learner, hatrack.load(tmp_path, net(1))):
        assert each.verify().ok or not each.method.promises()


def test_another_thread_can_stop_a_task_and_the_next_one_is_not_stopped(tasks: list[Task]) -> None:
    learner = Learner(net(), METHODS["sgd"](lr_patience=10**6), epochs=10**6)
    threads = []

    def hear(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            threads.append(Thread(target=learner.stop))
            threads[0].start()

    learner.learn(tasks[0], on_epoch=hear)
    assert 2 <= len(learner.history[0].epochs) < 10**6
    learner.epochs = 2
    assert len(learner.learn(tasks[1]).epochs) == 2


def test_nothing_to_stop_is_said() -> None:
    with pytest.raises(HatrackError, match="no task is being learned, so there is none to stop"):
        Learner(net(), epochs=1).stop()
