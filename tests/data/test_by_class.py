from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data import Task, tasks
from hatrack.errors import HatrackError

from .make import write_parquet, write_set

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    for name, train in (("mnist", 20), ("cifar10", 10), ("cifar100", 5)):
        write_set(folder, name, train=train, test=2)
    return folder


def original_labels(task: Task, part: str) -> list[int]:
    """The labels that the pictures themselves carry in their corner, not those that the task says."""
    split = getattr(task, part)
    return [int(x) for x in split.on(CPU)[0][:, 0, 0, 2]]


def check(task: Task, classes: list[int]) -> None:
    """All parts hold pictures of `classes`, renumbered in their order; no picture is in two parts."""
    seen: set[int] = set()
    for part in ("train", "valid", "test"):
        split = getattr(task, part)
        x, y = split.on(CPU)
        assert [classes[label] for label in y.tolist()] == original_labels(task, part)
        if part != "test":
            rows = [int(a) + 256 * int(b) for a, b in x[:, 0, 0, :2].tolist()]
            assert not seen & set(rows)
            seen |= set(rows)
    assert set(original_labels(task, "test")) == set(classes)
    assert task.about["labels"] == classes
    assert task.classes == len(classes)


def pairs(count: int, size: int) -> list[list[int]]:
    return [list(range(start, start + size)) for start in range(0, count, size)]


@pytest.mark.parametrize(
    ("benchmark", "groups", "names"),
    [
        ("split-mnist", pairs(10, 2), ["mnist 0-1", "mnist 2-3", "mnist 4-5", "mnist 6-7", "mnist 8-9"]),
        ("mnist2", pairs(10, 5), ["mnist 0-4", "mnist 5-9"]),
        ("split-cifar10", pairs(10, 2), [f"cifar10 {a}-{a + 1}" for a in range(0, 10, 2)]),
    ],
)
def test_neighbouring_classes(sets: Path, benchmark: str, groups: list[list[int]], names: list[str]) -> None:
    made = tasks(benchmark, seed=3, data=sets)
    assert [task.name for task in made] == names
    for task, classes in zip(made, groups, strict=True):
        check(task, classes)
        assert task.valid is not None
        total = len(task.train) + len(task.valid)
        assert len(task.valid) == round(0.1 * total)


def test_mnist_is_normalised_unpadded_and_cifar_by_hats_figures(sets: Path) -> None:
    assert tasks("split-mnist", data=sets)[0].about["mean"] == [0.1307]
    np.testing.assert_allclose(tasks("split-cifar10", data=sets)[0].about["mean"], [0.4914, 0.4824, 0.4467], atol=1e-4)


@pytest.mark.parametrize(("seed", "order"), [(0, [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]), (1, [2, 9, 6, 4, 0, 3, 1, 7, 8, 5])])
def test_hats_cifar_has_the_published_order_and_ten_per_cent_validation(
    sets: Path, seed: int, order: list[int]
) -> None:
    names = [f"cifar10 {a}-{a + 1}" for a in range(0, 10, 2)]
    names += [f"cifar100 {a}-{a + 19}" for a in range(0, 100, 20)]
    groups = pairs(10, 2) + pairs(100, 20)
    made = tasks("cifar", seed=seed, data=sets)
    assert [task.name for task in made] == [names[position] for position in order]
    for task, position in zip(made, order, strict=True):
        check(task, groups[position])
        assert task.valid is not None
        assert len(task.valid) == int(0.1 * (len(task.train) + len(task.valid)))


def test_the_embedded_digits_split() -> None:
    made = tasks("split-digits", seed=0)
    assert [task.name for task in made] == ["digits 0-1", "digits 2-3", "digits 4-5", "digits 6-7", "digits 8-9"]
    assert sum(task.about["train"] + task.about["valid"] + task.about["test"] for task in made) == 1797
    assert made[0].about["rows"] == tasks("split-digits", seed=0)[0].about["rows"]
    assert made[0].about["rows"] != tasks("split-digits", seed=1)[0].about["rows"]


@pytest.mark.parametrize("benchmark", ["split-mnist", "mnist2", "split-cifar10", "cifar", "c-10", "permuted-mnist"])
def test_everything_follows_from_the_seed(sets: Path, benchmark: str) -> None:
    def states(seed: int) -> list[tuple[str, str]]:
        return [(task.name, task.about["rows"]) for task in tasks(benchmark, seed=seed, data=sets)]

    assert states(0) == states(0)
    assert states(0) != states(1)


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
