"""Going back to before a task: what fails deep in a Dataset, what is refused at once, what a method holds."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import hatrack
from hatrack import HAT, HatrackError, Learner, Task
from hatrack.data.feed import Batch
from hatrack.learn.before import Before, Structure
from hatrack.learn.fit import Epoch
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.nets import build
from hatrack.testing.case import held


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return build("mlp", (1, 8, 8), widths=(12, 10), dropout=0.0, input_dropout=0.0)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return hatrack.tasks("split-digits", seed=0)[:3]


class Samples(Dataset[Any]):
    """Samples of which one, at `row`, has a label or a shape of its own."""

    def __init__(self, n: int = 200, row: int = -1, label: int = 7, size: int = 8) -> None:
        self.n, self.row, self.label, self.size = n, row, label, size

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        odd = row == self.row
        size = self.size if odd else 8
        return torch.full((1, size, size), row / self.n), self.label if odd else row % 2


def test_a_label_deep_in_a_dataset_is_found_in_training_and_leaves_nothing(tasks: list[Task], tmp_path: Path) -> None:
    learner, clean = Learner(net(), HAT(), epochs=1), Learner(net(), HAT(), epochs=1)
    for each in (learner, clean):
        each.learn(tasks[0])
    before = held(learner, tmp_path)
    for workers in (0, 2):
        learner.workers = workers
        with pytest.raises(HatrackError, match=r"label 7 in the Dataset of task number 1 is outside 0\.\.1"):
            learner.learn(Task("deep", Samples(row=150), Samples(), Samples(), classes=2))
        assert held(learner, tmp_path) == before
    learner.workers = 0
    for each in (learner, clean):
        each.learn(Task("deep", Samples(), Samples(), Samples(), classes=2))
    assert held(learner, tmp_path) == held(clean, tmp_path)


@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize(
    ("odd", "says"),
    [
        (Samples(row=3), r"label 7 in the Dataset of task number 1 is outside 0\.\.1"),
        (Samples(row=3, label=1, size=9), "make no batch .* bring them to one shape and type"),
    ],
    ids=["label", "shape"],
)
def test_every_part_has_a_batch_tried_before_anything_is_trained(
    part: str, odd: Samples, says: str, tasks: list[Task], tmp_path: Path
) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    before, seen = held(learner, tmp_path), []
    parts = {name: Samples() for name in ("train", "valid", "test")} | {part: odd}
    with pytest.raises(HatrackError, match=says) as told:
        learner.learn(Task("odd", **parts, classes=2), on_epoch=seen.append)
    assert "\n" not in str(told.value)
    assert not seen
    assert held(learner, tmp_path) == before


def test_inputs_of_another_type_are_refused_in_every_task(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    x, y = torch.zeros(40, 1, 8, 8, dtype=torch.float16), torch.arange(40) % 2
    for task in tasks[:2]:
        before = held(learner, tmp_path)
        with pytest.raises(HatrackError, match=r"cannot take the inputs of task 'half' .*torch\.float16"):
            learner.learn(Task("half", (x, y)))
        assert held(learner, tmp_path) == before
        learner.learn(task)
    assert learner.verify().ok


@pytest.mark.parametrize("name", ["hat", "joint", "packnet"])
def test_what_goes_on_after_a_load_and_fails_can_still_go_on(name: str, tasks: list[Task], tmp_path: Path) -> None:
    """Nothing that was trained before is lost, nor where it is saved again; `abandon` would give it up."""

    def net(seed: int = 0) -> torch.nn.Module:
        torch.manual_seed(seed)
        layers = torch.nn.Linear(64, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU()  # a norm that is one a task
        return torch.nn.Sequential(torch.nn.Flatten(), *layers)

    whole = Learner(net(), METHODS[name](), torch.optim.Adam, epochs=3)
    whole.learn(tasks[0])
    whole.learn(tasks[1], on_epoch=lambda epoch: whole.save(tmp_path / "mid") if epoch.epoch == 1 else None)

    def load(folder: Path) -> Learner:
        loaded = hatrack.load(folder, net(1), optimizer=torch.optim.Adam)
        if loaded.method.needs_old_data:
            loaded.remember(tasks[0])
        return loaded

    learner = load(tmp_path / "mid")
    before = held(learner, tmp_path / "held")

    def fail(epoch: Epoch) -> None:
        raise RuntimeError("callback")

    with pytest.raises(RuntimeError, match="callback"):
        learner.learn(tasks[1], on_epoch=fail)
    assert held(learner, tmp_path / "held") == before
    with pytest.raises(HatrackError, match=r"interrupted in task 'digits 2-3'; go on .* learner\.abandon\(\)"):
        learner.learn(tasks[2])
    for each in (learner, load(tmp_path / "held")):
        seen: list[int] = []
        each.learn(tasks[1], on_epoch=lambda epoch: seen.append(epoch.epoch))  # noqa: B023  # called in this round
        assert seen == [2, 3]
        assert held(each, tmp_path / "end") == held(whole, tmp_path / "whole")


def test_a_save_of_version_0_1_is_given_up_as_far_as_it_goes(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=3)
    learner.learn(tasks[0])
    x = tasks[0].test.first(20)
    said = learner.predict(x, 0)
    learner.learn(tasks[1], on_epoch=lambda epoch: learner.save(tmp_path) if epoch.epoch == 2 else None)
    page = json.loads((tmp_path / "learner.json").read_text())
    del page["files"]["before"], page["sha256"], page["seals"]  # the digest of a page with seals is asked for
    (tmp_path / "learner.json").write_text(json.dumps(page))
    loaded = hatrack.load(tmp_path, net(1))
    loaded.abandon()
    assert loaded.verify().ok
    assert torch.equal(loaded.predict(x, 0), said)
    loaded.learn(tasks[2])
    assert loaded.verify().ok
    assert [t.name for t in loaded.tasks] == [tasks[0].name, tasks[2].name]


def test_refusals_around_a_task_in_progress(tasks: list[Task]) -> None:
    learner = Learner(net(), HAT(), epochs=2)
    with pytest.raises(HatrackError, match="no task in progress to give up"):
        learner.abandon()
    told: list[str] = []

    def ask(epoch: Epoch) -> None:
        for call in (learner.abandon, lambda: learner.learn(tasks[1])):
            with pytest.raises(HatrackError, match="'digits 0-1' is being learned; wait for its end") as caught:
                call()
            told.append(str(caught.value))

    learner.learn(tasks[0], on_epoch=ask)
    assert len(told) == 4
    with pytest.raises(HatrackError, match="no task in progress to give up"):
        learner.abandon()


def test_a_way_back_that_is_broken_off_can_be_gone_again(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(net(), METHODS["packnet"](), epochs=2)
    learner.learn(tasks[0])
    before = held(learner, tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def fail(epoch: Epoch) -> None:
        monkeypatch.setattr(METHODS["packnet"], "load_state", stop)
        raise RuntimeError

    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[1], on_epoch=fail)
    monkeypatch.undo()
    with pytest.raises(HatrackError, match=r"in no state to go on; give the task up with learner\.abandon\(\)"):
        learner.learn(tasks[1])
    learner.abandon()
    assert held(learner, tmp_path) == before


def test_the_network_is_in_the_mode_it_was_in_and_holds_no_gradients(tasks: list[Task]) -> None:
    made = net()
    learner = Learner(made, HAT(), epochs=2)
    learner.learn(tasks[0])
    made.train()
    made[0].eval() if isinstance(made, torch.nn.Sequential) else next(iter(made.children())).eval()
    modes = [module.training for module in made.modules()]
    assert True in modes
    assert False in modes

    def fail(epoch: Epoch) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        learner.learn(tasks[1], on_epoch=fail)
    assert [module.training for module in made.modules()] == modes
    assert all(p.grad is None for p in made.parameters())


def test_a_first_task_that_failed_leaves_no_example_behind(tmp_path: Path) -> None:
    """Neither in the unit map, which is traced with it, nor in what is saved in the middle of the next one."""
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), torch.nn.ReLU(), torch.nn.Flatten())
    learner, y = Learner(made, HAT(), epochs=2), torch.arange(40) % 2
    large, small = Task("large", (torch.randn(40, 1, 8, 8), y)), Task("small", (torch.randn(40, 1, 6, 6), y))

    def save_and_fail(epoch: Epoch) -> None:
        learner.save(tmp_path)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        learner.learn(large, on_epoch=save_and_fail)
    learner.learn(small, on_epoch=lambda epoch: learner.save(tmp_path))
    assert learner.model.units.features.shape == (6 * 4 * 4,)
    with torch.random.fork_rng():
        loaded = hatrack.load(tmp_path, torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), *made[1:]))
    assert loaded.model.example is not None
    assert loaded.model.example.shape == (1, 1, 6, 6)
    loaded.abandon()
    loaded.learn(large)
    assert loaded.verify().ok


def test_what_filled_the_memory_is_gone_before_the_way_back(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Tensor]] = []
    gone: list[bool] = []
    sgd, restore = METHODS["sgd"], Before.restore

    def fill(self: Method, batch: Batch) -> Tensor:
        large = torch.zeros(1000)
        held.append(weakref.ref(large))
        raise torch.OutOfMemoryError("no room")

    def look(self: Before, learner: Learner) -> None:
        gone.append(held[0]() is None)
        restore(self, learner)

    monkeypatch.setattr(sgd, "loss", fill)
    monkeypatch.setattr(Before, "restore", look)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        Learner(net(), sgd(), epochs=1).learn(tasks[0])
    assert gone == [True]


def test_a_stop_before_the_first_step_leaves_no_task_in_progress(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    learner.learn(tasks[0])
    before, begin = held(learner, tmp_path), HAT.begin_task

    def stop(*args: Any) -> None:
        begin(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(HAT, "begin_task", stop)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(tasks[1])
    monkeypatch.undo()
    assert held(learner, tmp_path) == before
    learner.learn(tasks[2])


def test_holders_hold_again_what_they_held_however_deep() -> None:
    class Deep:
        pass

    root, inner, tensor = Deep(), Deep(), torch.zeros(2)
    root.listed, root.named, inner.back = [1, inner], {"a": {2, 3}, "t": tensor}, root  # type: ignore[attr-defined]
    listed, named, chosen = root.listed, root.named, root.named["a"]  # type: ignore[attr-defined]
    structure = Structure(root)
    root.listed.append(4)  # type: ignore[attr-defined]
    inner.new = 5  # type: ignore[attr-defined]
    chosen.add(6)
    named["b"] = 7
    root.named = None  # type: ignore[attr-defined]
    structure.restore()
    assert root.listed is listed  # type: ignore[attr-defined]
    assert root.named is named  # type: ignore[attr-defined]
    assert listed == [1, inner]
    assert vars(inner) == {"back": root}
    assert named == {"a": {2, 3}, "t": tensor}
