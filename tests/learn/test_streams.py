"""Learning from what only streams: files of any size, validation and test among them."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset, get_worker_info

import hatrack
from hatrack import HatrackError, Learner, Task
from hatrack.methods import METHODS


class Tar(IterableDataset[Any]):
    """Shards as WebDataset writes them: in each tar file, for every sample, key.x (bytes) and key.json."""

    def __init__(self, shards: list[Path], shuffled: bool = False) -> None:
        self.shards, self.shuffled = shards, shuffled

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        worker = get_worker_info()
        mine = list(self.shards) if worker is None else self.shards[worker.id :: worker.num_workers]
        if self.shuffled:
            random.shuffle(mine)
        for shard in mine:
            with tarfile.open(shard) as tar:
                held: dict[str, bytes] = {}
                for member in tar:
                    file = tar.extractfile(member)
                    assert file is not None
                    held[member.name.partition(".")[2]] = file.read()
                    if len(held) == 2:
                        x = torch.frombuffer(bytearray(held["x"]), dtype=torch.uint8).view(1, 4, 4)
                        yield x, json.loads(held["json"])["label"]
                        held = {}


def shards(folder: Path, seed: int, lengths: tuple[int, ...] = (21, 9, 14)) -> list[Path]:
    folder.mkdir()
    numbers = random.Random(seed)
    paths = []
    for shard, length in enumerate(lengths):
        paths.append(folder / f"{shard:03d}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for row in range(length):
                label = row % 2
                x = bytes(
                    numbers.randrange(60) + (180 if column // 2 == label else 0)
                    for _ in range(4)
                    for column in range(4)
                )
                for name, content in ((f"{row}.x", x), (f"{row}.json", json.dumps({"label": label}).encode())):
                    about = tarfile.TarInfo(name)
                    about.size = len(content)
                    tar.addfile(about, io.BytesIO(content))
    return paths


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    made = []
    for seed, name in enumerate("ab"):
        places = [
            shards(tmp_path / f"{name}-{part}", 10 * seed + number)
            for number, part in enumerate(("train", "valid", "test"))
        ]
        made.append(Task(name, *(Tar(paths, part == 0) for part, paths in enumerate(places)), classes=2))
    return made


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.ReLU())


def learner(method: str = "hat", **options: Any) -> Learner:
    return Learner(net(), METHODS[method](), **{"epochs": 3, "batch_size": 8, "device": "cpu", **options})


@pytest.mark.parametrize("method", ["hat", "ewc", "sgd"])
@pytest.mark.parametrize("workers", [0, 2])
def test_tar_files_are_learned_from_validated_and_tested_on(method: str, workers: int, tasks: list[Task]) -> None:
    made = learner(method, workers=workers, epochs=8)
    for task in tasks:
        made.learn(task)
    scores = made.matrix()[-1]
    assert all(score is not None and score > 0.9 for score in scores[1:])
    if made.method.promises():
        assert made.verify().ok
        assert scores[0] == made.matrix()[0][0]
    assert tasks[0].about["train"] == 44


def test_a_killed_run_begins_the_epoch_again_and_ends_as_if_nothing_had_happened(
    tasks: list[Task], tmp_path: Path
) -> None:
    whole = learner()
    whole.learn(tasks[0])
    random.seed()
    whole.learn(tasks[1], on_epoch=lambda epoch: whole.save(tmp_path / "saved") if epoch.epoch == 2 else None)
    resumed = hatrack.load(tmp_path / "saved", net(), device="cpu")
    resumed.learn(tasks[1])
    for a, b in zip(whole.model.tensors().values(), resumed.model.tensors().values(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(whole.model.heads[1].weight, resumed.model.heads[1].weight)


def test_an_epoch_of_a_given_length(tasks: list[Task], tmp_path: Path) -> None:
    paths = shards(tmp_path / "more", 3)
    task = Task("c", Tar(paths, True), tasks[0].valid, classes=2, length=100)
    made = learner()
    made.learn(task)
    assert task.about["train"] == len(task.train) == 100


def test_guessing_counts_the_classes_of_a_stream(tasks: list[Task]) -> None:
    made = learner("random")
    made.learn(tasks[0])
    assert tasks[0].train.labels is None
    labels = [y for _, y in Tar(tasks[0].train._x.shards)]
    shares = torch.bincount(torch.tensor(labels)).double() / len(labels)
    assert torch.allclose(made.method.state()["log_frequency/0"].exp(), shares)


def test_a_stream_that_gives_its_samples_once_is_named() -> None:
    class Once(IterableDataset[Any]):
        def __init__(self) -> None:
            self.samples = iter([(torch.rand(1, 4, 4), 0)] * 8)

        def __iter__(self) -> Iterator[Any]:
            return self.samples

    with pytest.raises(HatrackError, match="task 'a': its training part gives no sample when it is gone through once"):
        learner().learn(Task("a", Once(), Once(), classes=2))


@pytest.mark.parametrize("method", ["joint", "replay-all", "a-gem", "replay"])
def test_a_method_that_goes_back_to_samples_refuses_a_stream(method: str, tasks: list[Task]) -> None:
    made = learner(method)
    with pytest.raises(HatrackError, match=f"{method} keeps samples of task 'a', .* give a map-style one"):
        made.learn(tasks[0])
    assert made.finished == 0


def test_a_stream_needs_a_validation_part(tasks: list[Task]) -> None:
    made = learner()
    with pytest.raises(
        HatrackError, match=r"task 'a': of an iterable Dataset no samples can be held out; give .*valid="
    ):
        made.learn(Task("a", tasks[0].train, classes=2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": torch.ones(44)}, "weights are for samples that have numbers"),
        ({"sampler": "balanced"}, "a sampler is for samples that have numbers"),
        ({"classes": None}, "the number of classes cannot be seen"),
        ({"length": 0}, "length must be a whole number, 1 or more, got 0"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = Tar(shards(tmp_path / "x", 0))
    with pytest.raises(HatrackError, match=f"task 't'.*{words}"):
        Task("t", data, **{"classes": 2, **options})


def test_a_length_is_for_streams_and_an_empty_one_is_refused() -> None:
    rows = TensorDataset(torch.zeros(4, 2), torch.zeros(4).long())
    with pytest.raises(HatrackError, match="task 't', train: length is for an iterable Dataset"):
        Task("t", rows, classes=2, length=3)
    with pytest.raises(HatrackError, match="task 't', train: it holds no sample"):
        Task("t", Tar([]), classes=2)
