"""What is saved is the learner as it stands, whatever happened before, and nobody else's files are touched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import hatrack
from hatrack import HAT, HatrackError, Learner, Task
from hatrack.errors import Edited
from hatrack.learn.fit import Epoch
from hatrack.learn.state import verify
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


@pytest.mark.parametrize("method", ["joint", "a-gem", "lwf", "replay-all", "replay", "der++"])
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
    del page["sha256"], page["seals"]  # as of version 0.1, where a page without a digest is taken as it is
    for group in page["fit"]["optimizer"]["groups"]:
        group["capturable"] = True
    (tmp_path / "learner.json").write_text(json.dumps(page))
    loaded = hatrack.load(tmp_path, net(), device="cpu", optimizer=torch.optim.Adam)
    loaded.learn(tasks[0])
    assert loaded.finished == 1


def pictures(task: Task, count: int = 64) -> list[bytes]:
    """Return the first samples of every part, as they were given and as the network sees them."""
    found = []
    for split in (task.train, task.valid, task.test):
        if split is not None:
            raw = split.first(count)
            prepared = task.inputs.on(torch.device("cpu"))(raw)
            found += [x.contiguous().numpy().tobytes() for part in (raw, prepared) for x in part]
    return found


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if not m.keeps_samples])
def test_no_sample_stands_in_what_is_saved(method: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS[method](), epochs=1)
    learner.learn(tasks[0])
    epochs: list[int] = []

    def save(epoch: Epoch) -> None:
        epochs.append(epoch.epoch)
        learner.save(tmp_path / f"mid{len(epochs)}")

    learner.learn(tasks[1], on_epoch=save)
    learner.save(tmp_path / "end")
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    samples = {x for task in tasks for x in pictures(task)}
    assert not any(x in data for x in samples for data in written)
    assert not json.loads((tmp_path / "end" / "learner.json").read_text())["keeps_samples"]


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.keeps_samples])
def test_a_method_that_keeps_samples_says_so(method: str, tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), METHODS[method](), epochs=1)
    learner.learn(tasks[0])
    learner.save(tmp_path)
    data = b"".join(path.read_bytes() for path in tmp_path.glob("*.safetensors"))
    assert any(x in data for x in pictures(tasks[0], 300))
    assert json.loads((tmp_path / "learner.json").read_text())["keeps_samples"]
    assert {name for name, m in METHODS.items() if m.keeps_samples} == {"a-gem", "replay", "der++"}


OLD = Path(__file__).parent / "version_0_1"  # written by it: two tasks of 3×3 pictures, under HAT and under plain SGD


def old_tasks() -> list[Task]:
    made = []
    for i in range(2):
        generator = torch.Generator().manual_seed(i)
        x = torch.randint(0, 256, (40, 1, 3, 3), generator=generator).to(torch.uint8)
        y = (x.float().flatten(1)[:, i] > 127).long()
        made.append(Task(f"t{i}", (x, y), (x[:8], y[:8]), (x[8:16], y[8:16]), inputs=hatrack.Inputs((0.5,), (0.3,))))
    return made


def old_net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 6), torch.nn.ReLU())


@pytest.mark.parametrize("method", ["hat", "sgd"])
def test_a_save_of_version_0_1_verifies_loads_and_loses_its_samples(method: str, tmp_path: Path) -> None:
    samples = [x for task in old_tasks() for x in pictures(task)]
    assert any(x in path.read_bytes() for x in samples for path in (OLD / method).iterdir())
    verdict = verify(OLD / method, old_net(), "cpu")
    assert [t.ok for t in verdict.tasks] == [method == "hat", True]
    assert ("2 of 2 tasks were saved by version 0.1" in str(verdict)) == (method == "hat")
    loaded = hatrack.load(OLD / method, old_net(), device="cpu")
    assert str(loaded.verify()) == str(verdict)
    x = old_tasks()[0].test.first(5)
    answers = [loaded.predict(x, t) for t in (0, 1)]
    assert loaded.predict(x * 200.0, 0).shape == (5, 2), "what its inputs were like is not known"

    loaded.save(tmp_path)
    written = [path.read_bytes() for path in tmp_path.iterdir()]
    assert not any(x in data for x in samples for data in written)
    again = verify(tmp_path, old_net(), "cpu")
    assert [t.ok for t in again.tasks] == [t.ok for t in verdict.tasks], "what had changed still has"
    assert ("nobody knows by how much" in str(again)) == (method == "sgd")
    renewed = hatrack.load(tmp_path, old_net(), device="cpu")
    assert all(torch.equal(renewed.predict(x, t), answers[t]) for t in (0, 1))
    third = old_tasks()[1]
    third.name = "t2"
    renewed.learn(third)
    assert renewed.verify().tasks[2].ok
    assert renewed.tasks[2].kind.raw
    assert renewed.probes[2].seal is not None


@pytest.mark.parametrize("method", ["hat", "sgd"])
def test_a_save_of_version_0_1_has_a_history_of_names(method: str, tmp_path: Path) -> None:
    loaded = hatrack.load(OLD / method, old_net(), device="cpu")
    assert [known.name for known in loaded.history] == [task.name for task in old_tasks()]
    assert not any(known.epochs for known in loaded.history)
    assert loaded.matrix() == [[None], [None, None]]
    loaded.save(tmp_path)
    assert hatrack.load(tmp_path, old_net(), device="cpu").history == loaded.history


def test_a_page_of_version_0_1_that_was_edited_is_found_out(tmp_path: Path) -> None:
    shutil.copytree(OLD / "hat", tmp_path / "old")
    page = tmp_path / "old" / "learner.json"
    page.write_text(page.read_text().replace("0.5", "0.25"))
    assert "learner.json was changed" in str(verify(tmp_path / "old", old_net(), "cpu"))


def test_what_one_bit_does_to_a_saved_learner(tasks: list[Task], tmp_path: Path) -> None:
    """In every tensor: a file that can still be read is named, with the task where an answer hangs on it."""
    learner = Learner(net(), HAT(), epochs=1)
    for task in tasks:
        learner.learn(task)
    learner.save(tmp_path)
    assert verify(tmp_path, net()).ok
    for path in sorted(tmp_path.glob("*.safetensors")):
        data = path.read_bytes()
        header = int.from_bytes(data[:8], "little")
        for name, about in json.loads(data[8 : 8 + header]).items():
            start, end = (8 + header + offset for offset in about["data_offsets"])
            if start == end:
                continue
            place = (start + end) // 2
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            verdict = verify(tmp_path, net())
            assert verdict.changed, name
            assert f"{path.name} was changed" in str(verdict)
            if name in ("head/0/weight", "method/mask/0"):
                assert not verdict.tasks[0].ok
            with pytest.raises(Edited, match=path.name):
                hatrack.load(tmp_path, net())
        path.write_bytes(data)
    assert verify(tmp_path, net()).ok


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": {}}', '{"files": {}, "schema": 1}', "[" * 100_000])
def test_a_page_that_is_none_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "learner.json").write_text(text)
    with pytest.raises(HatrackError) as told:
        hatrack.load(tmp_path, net())
    assert "\n" not in str(told.value)
    with pytest.raises(HatrackError):
        verify(tmp_path, net())


def test_a_page_that_is_a_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "learner.json").mkdir()
    with pytest.raises(HatrackError, match=r"learner\.json cannot be read \(Is a directory\)"):
        hatrack.load(tmp_path, net())


def test_saved_again_unchanged_is_the_same_to_the_byte(tasks: list[Task], tmp_path: Path) -> None:
    learner = Learner(net(), HAT(), epochs=1)
    for task in tasks:
        learner.learn(task)
    learner.save(tmp_path / "a")
    learner.save(tmp_path / "a")
    hatrack.load(tmp_path / "a", net(1)).save(tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()
    assert verify(tmp_path / "b", net()).ok
