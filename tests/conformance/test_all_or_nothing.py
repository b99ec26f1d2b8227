"""A task is learned or it never was, for every method: what a save holds is the same, byte for byte, as before.

Where learning fails, and where it is stopped and given up, in the same process and after a load; and whatever failed,
the next task is learned as by a learner that never saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hatrack
import saved
from hatrack import Learner, Task
from hatrack.learn.fit import Epoch
from hatrack.learn.proof import verification as proof
from hatrack.methods import METHODS

pytestmark = pytest.mark.filterwarnings("ignore::hatrack.errors.HatrackWarning")

SAMPLES, BATCH, EPOCHS = 48, 16, 2


class Trouble(Exception):
    """What fails."""


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(96, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 10), nn.ReLU(),
    )  # fmt: skip


def new_learner(name: str) -> Learner:
    return Learner(network(), METHODS[name](), epochs=EPOCHS, batch_size=BATCH, device="cpu")


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    whole = hatrack.tasks("split-digits", seed=0)[:3]
    some = torch.arange(SAMPLES)
    return [Task(t.name, t.train.take(some), t.valid, t.test, inputs=t.inputs) for t in whole]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def held(learner: Learner, folder: Path) -> dict[str, Any]:
    """Return all that a save says of a learner, and the network's modes."""
    modes = [module.training for module in learner.model.net.modules()]
    return saved.held(learner, folder) | {"modes": modes, "example": learner.model.example is not None}


def failing(verb: str, call: int, kind: type[BaseException], before: bool = True) -> Callable[..., Any]:
    """Patch a verb of the method so that its `call`-th call raises, before or after it has done its work."""

    def patch(learner: Learner, patcher: pytest.MonkeyPatch) -> None:
        cls = type(learner.method)
        original, calls = getattr(cls, verb), iter(range(1, 1_000_000))

        def fail(self: Any, *args: Any) -> Any:
            due = next(calls) == call
            if due and before:
                raise kind
            result = original(self, *args)
            if due:
                raise kind
            return result

        patcher.setattr(cls, verb, fail)

    return patch


def failing_proof(learner: Learner, patcher: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise Trouble

    patcher.setattr(proof, "probe_logits", fail)


def nothing(learner: Learner, patcher: pytest.MonkeyPatch) -> None:
    """Only the callback fails."""


FAILURES: dict[str, Callable[..., Any]] = {
    "begin": failing("begin_task", 1, Trouble, before=False),
    "first batch": failing("loss", 1, Trouble),
    "mid-epoch": failing("loss", 5, Trouble),
    "out of memory": failing("loss", 5, torch.OutOfMemoryError),
    "callback": nothing,
    "validation": failing("valid_loss", 2, Trouble),
    "end of a phase": failing("end_phase", 1, Trouble, before=False),
    "end of the task": failing("end_task", 1, Trouble, before=False),
    "proof": failing_proof,
}
OF_A_FIRST_TASK = ("begin", "mid-epoch", "end of the task")  # each has to trace the network anew
WITHOUT_TRAINING = ("begin", "end of a phase", "end of the task", "proof")


def fail(learner: Learner, task: Task, failure: str) -> None:
    seen: list[Epoch] = []

    def callback(epoch: Epoch) -> None:
        seen.append(epoch)
        if failure == "callback" and len(seen) == 2:
            raise Trouble

    with pytest.MonkeyPatch.context() as patcher:
        FAILURES[failure](learner, patcher)
        with pytest.raises((Trouble, torch.OutOfMemoryError)):
            learner.learn(task, on_epoch=callback)


def handed_over(learner: Learner, folder: Path, tasks: list[Task]) -> Learner:
    """Save and load."""
    learner.save(folder)
    loaded = hatrack.load(folder, network(seed=9), device="cpu")
    if loaded.method.needs_old_data:
        for task in tasks[: loaded.finished]:
            loaded.remember(task)
    return loaded


@pytest.mark.parametrize("name", METHODS)
def test_a_task_that_fails_never_was(name: str, tasks: list[Task], tmp_path: Path) -> None:
    learner, clean = new_learner(name), new_learner(name)
    possible = FAILURES if learner.method.trains else WITHOUT_TRAINING
    for index, failures in enumerate((OF_A_FIRST_TASK, FAILURES)):
        before = held(learner, tmp_path / "held")
        for failure in [f for f in failures if f in possible]:
            fail(learner, tasks[2], failure)
            assert held(learner, tmp_path / "held") == before, failure
        loaded = handed_over(learner, tmp_path / "loaded", tasks)
        for each in (learner, clean, loaded):
            each.learn(tasks[index])
        after = held(clean, tmp_path / "clean")
        assert held(learner, tmp_path / "held") == after
        assert held(loaded, tmp_path / "loaded") == after


@pytest.mark.parametrize("name", METHODS)
def test_a_task_that_is_given_up_never_was(name: str, tasks: list[Task], tmp_path: Path) -> None:
    learner, clean = new_learner(name), new_learner(name)
    for index in (0, 1):
        before = held(learner, tmp_path / "held")
        for verb in ("loss", "end_task") if learner.method.trains else ("end_task",):
            with pytest.MonkeyPatch.context() as patcher:
                failing(verb, 5 if verb == "loss" else 1, KeyboardInterrupt, before=False)(learner, patcher)
                with pytest.raises(KeyboardInterrupt):
                    learner.learn(tasks[2])
            if verb == "loss":  # in its middle a task can be saved, and given up by another process
                loaded = handed_over(learner, tmp_path / "loaded", tasks)
                loaded.abandon()
                assert held(loaded, tmp_path / "loaded") | {"modes": before["modes"]} == before
            learner.abandon()
            assert held(learner, tmp_path / "held") == before, verb
        others = [loaded] if learner.method.trains else []
        for each in (learner, clean, *others):
            each.learn(tasks[index])
        after = held(clean, tmp_path / "clean")
        for each in (learner, *others):
            assert held(each, tmp_path / "again") == after
