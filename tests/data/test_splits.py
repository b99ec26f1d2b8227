from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data import Task, tasks

from .make import write_set

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
