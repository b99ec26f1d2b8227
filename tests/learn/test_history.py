"""What `learn` returns and the learner remembers of it: epochs, times, the accuracy matrix."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import hatrack
from hatrack import Epoch, HatrackError, Learner, Task, TaskHistory
from hatrack.data.feed import Part
from hatrack.learn.history import dumps, loads, matched
from hatrack.learn.state import verify
from hatrack.methods import METHODS
from hatrack.nets import build


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build("mlp", (1, 8, 8), widths=(12, 10), dropout=0.0, input_dropout=0.0)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:3]


@pytest.fixture
def learner(tasks: list[Task]) -> Learner:
    made = Learner(net(), METHODS["sgd"](), epochs=3)
    for task in tasks[:2]:
        made.learn(task)
    return made


def test_history_is_what_learn_returned_and_the_matrix_what_evaluate_says(tasks: list[Task]) -> None:
    learner, seen = Learner(net(), METHODS["sgd"](), epochs=3), []
    for t, task in enumerate(tasks):
        returned = learner.learn(task, on_epoch=seen.append)
        assert returned == learner.history[t]
        assert returned.accuracy == [learner.evaluate(earlier, i) for i, earlier in enumerate(tasks[: t + 1])]
        assert returned.samples == {"train": len(task.train), "valid": len(task.valid), "test": len(task.test)}
    assert [epoch for known in learner.history for epoch in known.epochs] == seen
    assert [known.name for known in learner.history] == [task.name for task in tasks]
    assert learner.matrix() == [known.accuracy for known in learner.history]
    assert all(known.seconds > 0 for known in learner.history)


def test_a_task_without_a_test_part_has_no_accuracy_and_leaves_the_others_theirs(tasks: list[Task]) -> None:
    learner = Learner(net(), METHODS["sgd"](), epochs=1)
    learner.learn(Task("untested", tasks[0].train, tasks[0].valid))
    learner.learn(tasks[1])
    first, second = learner.matrix()
    assert first == [None]
    assert second == [None, learner.evaluate(tasks[1], 1)]


def test_what_is_tested_is_the_tasks_own_part_whatever_else_was_evaluated(learner: Learner, tasks: list[Task]) -> None:
    learner.evaluate(tasks[2], 0)  # other samples, answered as task 0
    learner.learn(tasks[2])
    assert learner.matrix()[2][0] == learner.evaluate(tasks[0], 0)


def test_it_is_saved_and_comes_back(learner: Learner, tasks: list[Task], tmp_path: Path) -> None:
    learner.save(tmp_path)
    loaded = hatrack.load(tmp_path, net(1))
    assert loaded.history == learner.history
    assert loaded.matrix() == learner.matrix()
    loaded.remember(tasks[1])
    row = loaded.learn(tasks[2]).accuracy
    assert row == [None, loaded.evaluate(tasks[1], 1), loaded.evaluate(tasks[2], 2)]
    learner.learn(tasks[2])
    assert [a for a, b in zip(learner.matrix()[2], row, strict=True) if b is not None] == row[1:]


def test_what_is_not_a_number_is_saved_too(tmp_path: Path) -> None:
    epoch = Epoch(0, "t", 0, 1, 9, math.nan, math.inf, 0.5, 0.1, None, None, False)
    text = dumps([TaskHistory("t", {"train": 3}, [epoch], 1.5, [None])])
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    [back] = loads(text)
    assert math.isnan(back.epochs[0].valid_loss)
    assert (back.samples, back.seconds, back.accuracy) == ({"train": 3}, 1.5, [None])


def test_a_learner_saved_in_mid_task_has_the_epochs_that_were_over(
    learner: Learner, tasks: list[Task], tmp_path: Path
) -> None:
    learner.learn(tasks[2], on_epoch=lambda epoch: learner.save(tmp_path) if epoch.epoch == 2 else None)
    again = hatrack.load(tmp_path, net(1))
    assert len(again.history) == 2
    again.learn(tasks[2])
    assert again.history[2].epochs == learner.history[2].epochs
    assert again.matrix()[2][:2] == [None, None]  # nobody has handed the first two in


@pytest.mark.parametrize("stored", [0, 1, 2, 3])
def test_a_history_of_another_moment_is_cut_to_what_the_learner_has(stored: int) -> None:
    epoch = Epoch(0, "t", 0, 1, 9, 1.0, 1.0, 0.5, 0.1, None, None, False)
    known = [TaskHistory(name, {}, [epoch] * 5, 1.0, [0.5] * (t + 1)) for t, name in enumerate("abc")]
    found = matched(known[:stored], ["a", "b"], finished=1, epochs=2)
    assert [(h.name, len(h.epochs), h.accuracy) for h in found] == [
        ("a", 5 if stored else 0, [0.5] if stored else [None]),
        ("b", 2 if stored > 1 else 0, []),
    ]
    assert matched(known, ["other"], finished=1, epochs=0) == [TaskHistory("other", accuracy=[None])]


def test_a_missing_history_is_none_and_one_that_was_edited_is_found(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path)
    file = tmp_path / "history.json"
    file.write_text(file.read_text().replace('"test": ', '"test": 1'))
    with pytest.raises(HatrackError, match=r"history\.json was changed after it was written"):
        hatrack.load(tmp_path, net(1))
    verdict = verify(tmp_path, net(1))
    assert verdict.changed
    assert len(verdict.tasks) == 2
    file.unlink()
    loaded = hatrack.load(tmp_path, net(1))
    assert loaded.matrix() == [[None], [None, None]]
    assert [(known.name, known.epochs) for known in loaded.history] == [("digits 0-1", []), ("digits 2-3", [])]


def test_a_task_that_fails_or_is_given_up_leaves_no_trace(learner: Learner, tasks: list[Task]) -> None:
    before, matrix = list(learner.history), learner.matrix()

    def fail(_: Epoch) -> None:
        raise RuntimeError

    def interrupt(_: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError):
        learner.learn(tasks[2], on_epoch=fail)
    assert (learner.history, learner.matrix()) == (before, matrix)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[2], on_epoch=interrupt)
    assert (learner.history, learner.matrix()) == (before, matrix)
    learner.abandon()
    assert learner.learn(tasks[2]).epochs[0].epoch == 1
    assert len(learner.history) == 3
    assert len(learner.matrix()[2]) == 3


class Poisoned(Dataset[Any]):
    """Samples that stop whoever reads the last one."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def __len__(self) -> int:
        return 80

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if row == 79:
            self._stop()
        return torch.full((1, 8, 8), row / 80), row % 2


def test_a_test_part_that_fails_undoes_the_task(learner: Learner, tasks: list[Task]) -> None:
    def fail() -> None:
        raise RuntimeError("no such file")

    with pytest.raises(RuntimeError, match="no such file"):
        learner.learn(Task("t", tasks[2].train, tasks[2].valid, Poisoned(fail), classes=2))
    assert (learner.finished, len(learner.history)) == (2, 2)
    learner.learn(tasks[2])
    assert None not in learner.matrix()[2]


def test_a_test_that_is_stopped_leaves_the_task_learned(learner: Learner, tasks: list[Task]) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(Task("t", tasks[2].train, tasks[2].valid, Poisoned(stop), classes=2))
    assert learner.matrix()[2] == [learner.evaluate(tasks[0], 0), learner.evaluate(tasks[1], 1), None]
    assert learner.verify().tasks[2].ok


def test_tests_that_do_not_fit_on_the_device_together_are_taken_one_by_one(
    learner: Learner, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Learner._accuracy

    def short_of_room(learner: Learner, part: Part) -> float:
        if len(learner._feeds) == 2:
            raise torch.OutOfMemoryError
        return usual(learner, part)

    monkeypatch.setattr(Learner, "_accuracy", short_of_room)
    tested = learner.learn(tasks[2]).accuracy
    monkeypatch.undo()
    assert tested == [learner.evaluate(task, i) for i, task in enumerate(tasks)]


def test_a_checkpoint_of_a_run_holds_none(tmp_path: Path) -> None:
    from hatrack.runs import folder
    from hatrack.runs.runner import execute
    from hatrack.runs.setup import prepare
    from hatrack.runs.spec import resolve
    from hatrack.show.progress import PlainProgress

    spec = resolve({"method": "sgd", "epochs": 1, "device": "cpu"}, [("widths", [12, 8])])
    with folder.create(spec.toml(), tmp_path / "run", "") as made:
        execute(prepare(spec), made, PlainProgress())
    assert not (tmp_path / "run" / "checkpoint" / "history.json").exists()


def test_a_copy_has_its_own(learner: Learner, tasks: list[Task]) -> None:
    from copy import deepcopy

    made = deepcopy(learner)
    made.learn(tasks[2])
    assert (len(made.history), len(learner.history)) == (3, 2)
    assert None not in made.matrix()[2]
