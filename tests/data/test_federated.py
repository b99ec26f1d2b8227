from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hatrack.data import tasks
from hatrack.errors import HatrackError

from .make import entries, png

CPU = torch.device("cpu")


def write_json(file: Path, users: dict[str, dict[str, Any]]) -> None:
    """Write a file as LEAF's preprocess.sh does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    counts = [len(held["y"]) for held in users.values()]
    file.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": users}))


def writer(number: int, count: int) -> dict[str, Any]:
    """Samples of one writer: the first pixel is the writer, the second the label, in units of 1/255."""
    y = [(number + 3 * i) % 62 for i in range(count)]
    return {"x": [[number / 255, label / 255, *[0.5] * 782] for label in y], "y": y}


def write_femnist(data: Path, per_file: int = 5, files: int = 3) -> Path:
    home = data / "femnist" / "data"
    for part, count in (("train", 22), ("test", 4)):
        for index in range(files):
            numbers = range(index * per_file, (index + 1) * per_file)
            write_json(
                home / part / f"all_data_{index}_niid_0_keep_0_{part}_9.json",
                {f"f{number:04d}_41": writer(number, count) for number in numbers},
            )
    return home


def test_femnist_gives_a_writer_a_task(data: Path) -> None:
    write_femnist(data)
    made = tasks("femnist", seed=0, data=data)
    assert len(made) == 10
    assert sorted(task.name for task in made) == [f"femnist f{number:04d}_41" for number in range(10)]
    assert [task.name for task in made] != sorted(task.name for task in made)
    for task in made:
        number = int(task.name.split()[1][1:5])
        assert (task.classes, len(task.train)) == (62, 20)
        for part in (task.train, task.valid, task.test):
            assert part is not None
            x, y = part.on(CPU)
            assert x.shape[1:] == (1, 28, 28)
            assert set(x[:, 0, 0, 0].tolist()) == {number}
            assert x[:, 0, 0, 1].tolist() == y.tolist()
            assert set(x[:, 0, 5].flatten().tolist()) == {128}
        assert task.about["class_names"][10] == "A"
        assert task.about["mean"] == [0.1307]


def test_users_may_lie_in_other_test_files_than_train_files(data: Path) -> None:
    home = write_femnist(data)
    (home / "test" / "all_data_0_niid_0_keep_0_test_9.json").rename(home / "test" / "zzz.json")
    for task in tasks("fe-10", seed=1, data=data):
        assert task.test is not None
        assert set(task.test.on(CPU)[0][:, 0, 0, 0].tolist()) == {int(task.name.split()[1][1:5])}


def write_celeba(data: Path, users: int = 12) -> Path:
    home = data / "celeba"
    images = home / "raw" / "img_align_celeba"
    images.mkdir(parents=True)
    shown = {part: {} for part in ("train", "test")}  # type: dict[str, dict[str, Any]]
    for user in range(users):
        for part, count in (("train", 11), ("test", 3)):
            names = [f"{part}{user:03d}{i:03d}.jpg" for i in range(count)]
            for i, name in enumerate(names):
                (images / name).write_bytes(png(np.full((3, 218, 178), 20 * user + i % 2, np.uint8)))
            shown[part][str(user)] = {"x": names, "y": [float(i % 2) for i in range(count)]}
    for part, held in shown.items():
        write_json(home / part / f"all_data_iid_01_05_keep_5_{part}_9.json", held)
    return home


def test_fceleba_reads_the_pictures_that_the_json_names(data: Path) -> None:
    write_celeba(data)
    made = tasks("fc-10", seed=3, data=data)
    assert len(made) == 10
    for task in made:
        user = int(task.name.split()[1])
        assert user < 10
        assert (task.classes, len(task.train), task.about["valid"], task.about["test"]) == (2, 10, 1, 3)
        x, y = task.train.on(CPU)
        assert x.shape[1:] == (3, 32, 32)
        assert x[:, 0, 0, 0].tolist() == [20 * user + label for label in y.tolist()]
        assert task.about["class_names"] == ["not smiling", "smiling"]
        assert task.about["mean"] == [0.485, 0.456, 0.406]


def test_the_papers_numbers_cap_a_users_samples(data: Path) -> None:
    home = write_femnist(data)
    big = {f"f{number:04d}_41": {"x": [[0.0] * 784] * 130, "y": [3] * 70 + [4] * 60} for number in range(10)}
    for part in ("train", "test"):
        for file in (home / part).glob("*.json"):
            file.unlink()
        write_json(home / part / "all.json", big)
    task = tasks("fe-10", data=data)[0]
    assert (len(task.train), task.about["valid"], task.about["test"]) == (100, 10, 20)


def refuses(benchmark: str, data: Path, cache: Path, *words: str) -> None:
    with pytest.raises(HatrackError) as caught:
        tasks(benchmark, data=data)
    for word in words:
        assert word in str(caught.value)
    assert entries(cache) == []


def test_missing_files_say_how_to_get_them(data: Path, own_cache: Path) -> None:
    refuses("femnist", data, own_cache, "no train/*.json", "cd leaf/data/femnist && ./preprocess.sh")
    refuses("fceleba", data, own_cache, "img_align_celeba")


def test_too_few_users_are_counted(data: Path, own_cache: Path) -> None:
    write_femnist(data)
    refuses("fe-20", data, own_cache, "15 users, 20 are needed")


def test_a_user_without_test_samples_is_named(data: Path, own_cache: Path) -> None:
    home = write_femnist(data)
    (home / "test" / "all_data_1_niid_0_keep_0_test_9.json").unlink()
    refuses("fe-10", data, own_cache, "'f0005_41' is missing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": [99, 0]}, "sample 0: label 99 is outside 0..61"),
        ({"y": [0, 1.5]}, "sample 1: label 1.5 is not a whole number"),
        ({"x": [[0.0] * 784, [0.0] * 10]}, "sample 1: expected 784 numbers"),
        ({"x": [[0.0] * 784, [300.0] * 784]}, "sample 1: pixels must lie in 0..1"),
        ({"x": [[0.0] * 784]}, "not a LEAF file"),
    ],
)
def test_a_wrong_sample_is_named(data: Path, own_cache: Path, change: dict[str, Any], words: str) -> None:
    home = write_femnist(data)
    file = home / "train" / "all_data_0_niid_0_keep_0_train_9.json"
    write_json(file, {"f0000_41": {**writer(0, 2), **change}})
    refuses("fe-10", data, own_cache, str(file), words)


def test_broken_json_is_named(data: Path, own_cache: Path) -> None:
    home = write_femnist(data)
    file = home / "train" / "all_data_0_niid_0_keep_0_train_9.json"
    file.write_text(file.read_text()[:100])
    refuses("fe-10", data, own_cache, str(file), "not a LEAF file")


def test_a_missing_picture_is_named(data: Path, own_cache: Path) -> None:
    home = write_celeba(data)
    (home / "raw" / "img_align_celeba" / "train004002.jpg").unlink()
    refuses("fc-10", data, own_cache, "user '4', sample 2", "train004002.jpg cannot be read")
