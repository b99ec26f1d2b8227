from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from hatrack.data import Task, tasks
from hatrack.errors import HatrackError

from .make import write_parquet, write_set

CPU = torch.device("cpu")


def labels(task: Task, part: str) -> Counter[int]:
    _, y = getattr(task, part).on(CPU)
    return Counter(y.tolist())


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_set(folder, "cifar100", train=10, test=3)
    return folder


@pytest.mark.parametrize(("name", "options", "count"), [
    ("split-cifar100", {"tasks": 5}, 5),
    ("split-cifar100", {"tasks": 20}, 20),
    ("c-10", {}, 10),
    ("c-20", {}, 20),
])  # fmt: skip
def test_the_classes_are_dealt_out_once_each(cifar: Path, name: str, options: dict[str, int], count: int) -> None:
    made = tasks(name, seed=4, data=cifar, **options)
    assert [task.name for task in made] == [f"cifar100 {n}/{count}" for n in range(1, count + 1)]
    dealt = [label for task in made for label in task.about["labels"]]
    assert sorted(dealt) == list(range(100))
    assert dealt != sorted(dealt)
    for task in made:
        x, y = task.train.on(CPU)
        assert x[:, 0, 0, 2].tolist() == [task.about["labels"][label] for label in y.tolist()]
        assert task.about["mean"] == [0.485, 0.456, 0.406]


def test_too_few_samples_keep_the_proportion_and_are_noted(cifar: Path) -> None:
    task = tasks("c-10", seed=0, data=cifar)[0]
    assert set(labels(task, "train").values()) == {9}
    assert set(labels(task, "valid").values()) == {1}
    assert set(labels(task, "test").values()) == {3}
    assert task.about["notes"] == [
        "9 train samples a class where the paper has 450",
        "1 valid samples a class where the paper has 50",
        "3 test samples a class where the paper has 100",
    ]


def test_too_many_samples_are_cut_to_the_papers_numbers(data: Path) -> None:
    for part, count in (("train", 510), ("test", 101)):
        ys = [0] * count + 2 * list(range(1, 100))
        write_parquet(data / "cifar100" / f"{part}.parquet", ys, (3, 32, 32))
    task = next(t for t in tasks("c-10", seed=0, data=data) if 0 in t.about["labels"])
    zero = task.about["labels"].index(0)
    assert [labels(task, part)[zero] for part in ("train", "valid", "test")] == [450, 50, 100]


def test_tiny_imagenet_and_imagenet32(data: Path) -> None:
    write_set(data, "tiny_imagenet32", train=3, test=1)
    assert [task.classes for task in tasks("t-20", data=data)] == [10] * 20
    assert [task.classes for task in tasks("tiny-imagenet", data=data)] == [20] * 10
    write_set(data, "imagenet32", train=2, test=1)
    made = tasks("i-100", seed=1, data=data)
    assert [task.classes for task in made] == [10] * 100
    assert made[0].name == "imagenet32 1/100"
    assert [task.classes for task in tasks("imagenet32", data=data, tasks=200)] == [5] * 200
    # One renumbered tensor serves all tasks: a copy each would be a gigabyte for the whole set.
    assert len({task.train._y.data_ptr() for task in made}) == 1


def test_a_number_of_tasks_that_does_not_divide_the_classes_is_refused(cifar: Path) -> None:
    with pytest.raises(HatrackError, match="100 classes cannot be divided into 7 tasks"):
        tasks("split-cifar100", data=cifar, tasks=7)


def test_a_short_name_takes_no_number_of_tasks(cifar: Path) -> None:
    with pytest.raises(HatrackError, match="'c-10' takes no options, got 'tasks'"):
        tasks("c-10", data=cifar, tasks=20)
