"""What is saved is the learner as it stands, whatever happened before, and nobody else's files are touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import hatrack
from hatrack import HAT, HatrackError, Learner, Task
from hatrack.learn.fit import Epoch
from hatrack.methods import METHODS
from hatrack.nets import build


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build("mlp", (1, 8, 8), widths=(12, 10), dropout=0.0, input_dropout=0.0)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:2]


def test_other_files_of_the_folder_stay(tasks: list[Task], tmp_path: Path) -> None:
    mine = [tmp_path / name for name in ("mine.safetensors", "notes.tmp", "tasks-of-today.safetensors")]
    for path in mine:
        path.write_text("mine")
    learner = Learner(net(), HAT(), epochs=1)
    leftovers = [tmp_path / f"live-{'0' * 12}.safetensors", tmp_path / ".learner.json.17.tmp"]
    for path in leftovers:
        path.write_text("left behind by a killed process")
    for task in tasks:
        learner.learn(task)
        learner.save(tmp_path)
    assert all(path.read_text() == "mine" for path in mine)
    assert not any(path.exists() for path in leftovers)
    assert len(list(tmp_path.glob("live-*"))) == len(list(tmp_path.glob("tasks-????????????.safetensors"))) == 1


def test_saved_before_the_first_task_and_again_in_its_middle(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=2)
    learner.save(tmp_path)
    learner.learn(tasks[0], on_epoch=lambda epoch: learner.save(tmp_path) if epoch.epoch == 1 else None)
    loaded = hatrack.load(tmp_path, net(1))
    loaded.learn(tasks[0])
    x = tasks[0].test.first(5)
    assert torch.equal(loaded.predict(x, 0), learner.predict(x, 0))


def test_a_task_that_is_begun_again_leaves_no_best_epoch_of_the_first_time(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=8)

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 5:
            learner.save(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[0], on_epoch=stop)

    def compare(epoch: Epoch) -> None:
        if epoch.epoch != 5:
            return
        learner.save(tmp_path)
        resume = hatrack.load(tmp_path, net(1))._resume
        assert resume is not None
        assert learner._fit is not None
        assert learner._fit.best_epoch == resume.numbers["best_epoch"] == 5  # the same number as the first time
        assert all(torch.equal(resume.best[name], t) for name, t in learner._fit.best.items())

    learner.learn(tasks[0], on_epoch=compare)


@pytest.mark.parametrize("method", ["joint", "a-gem", "lwf", "replay-all"])
def test_old_heads_that_go_on_learning_are_saved_as_they_are(method: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS[method](), epochs=2)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    x = tasks[0].test.first(9)

    def compare(epoch: Epoch) -> None:
        learner.save(tmp_path)
        assert torch.equal(hatrack.load(tmp_path, net(1)).predict(x, 0), learner.predict(x, 0))

    learner.learn(tasks[1], on_epoch=compare)


def test_a_stop_inside_an_epoch_does_not_count_it(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS["sgd"](), epochs=2, batch_size=1)
    turns = learner.learning(tasks[0])
    next(turns)
    learner.save(tmp_path)
    seen: list[int] = []
    hatrack.load(tmp_path, net(1)).learn(tasks[0], on_epoch=lambda epoch: seen.append(epoch.epoch))
    assert seen == [1, 2]


def test_what_an_optimiser_keeps_and_no_file_can_hold_is_refused_in_one_line(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS["sgd"](), optimizer=lambda p: torch.optim.LBFGS(p, lr=0.1), epochs=2)
    with pytest.raises(HatrackError, match="LBFGS keeps what cannot be saved in the middle of a task"):
        learner.learn(tasks[0], on_epoch=lambda _: learner.save(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_learning_rate_in_a_tensor_can_be_saved(tasks: list[Task], tmp_path: Path) -> None:
    def factory(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=torch.tensor(0.001))  # type: ignore[arg-type]

    learner = Learner(net(), METHODS["sgd"](), optimizer=factory, epochs=2)
    learner.learn(tasks[0], on_epoch=lambda epoch: learner.save(tmp_path) if epoch.epoch == 1 else None)
    loaded = hatrack.load(tmp_path, net(1), optimizer=factory)
    loaded.learn(tasks[0])
    x = tasks[0].test.first(5)
    torch.testing.assert_close(loaded.predict(x, 0), learner.predict(x, 0))


def test_an_optimiser_goes_on_under_the_engine_of_this_machine(tasks: list[Task], tmp_path: Path) -> None:
    """A graph keeps Adam's count on the device (`capturable`), which the CPU's Adam refuses."""
    learner = Learner(net(), METHODS["sgd"](), optimizer=torch.optim.Adam, epochs=4, device="cpu")

    def stop(epoch: Epoch) -> None:
        learner.save(tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[0], on_epoch=stop)
    page = json.loads((tmp_path / "learner.json").read_text())
    del page["sha256"]
    for group in page["fit"]["optimizer"]["groups"]:
        group["capturable"] = True
    (tmp_path / "learner.json").write_text(json.dumps(page))
    loaded = hatrack.load(tmp_path, net(), device="cpu", optimizer=torch.optim.Adam)
    loaded.learn(tasks[0])
    assert loaded.finished == 1
