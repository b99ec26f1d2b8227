from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data import class_tasks, load, one_task
from hatrack.data.split import Quota, renumbered
from hatrack.errors import HatrackError

from .make import write_set

CPU = torch.device("cpu")


@pytest.fixture
def mnist_folder(data: Path) -> Path:
    write_set(data, "mnist", train=10, test=2)
    return data


def test_a_whole_set_is_one_task(mnist_folder: Path) -> None:
    task = one_task(load("mnist", mnist_folder), seed=1, valid=0.2)
    assert (task.name, task.classes, len(task.train)) == ("mnist", 10, 80)
    assert task.about["set"] == "mnist"
    assert task.about["shape"] == [1, 28, 28]


def test_some_classes_are_renumbered_in_the_order_given(mnist_folder: Path) -> None:
    task = one_task(load("mnist", mnist_folder), "odd", classes=[7, 3])
    assert task.test is not None
    x, y = task.test.on(CPU)
    assert [(int(a), b) for a, b in zip(x[:, 0, 0, 2], y.tolist(), strict=True)] == [(3, 1), (7, 0)] * 2
    assert task.about["class_names"] == ["mnist 7", "mnist 3"]


def test_class_tasks_in_order_and_shuffled(mnist_folder: Path) -> None:
    mnist = load("mnist", mnist_folder)
    plain = class_tasks(mnist, 5)
    assert [task.name for task in plain] == ["mnist 0-1", "mnist 2-3", "mnist 4-5", "mnist 6-7", "mnist 8-9"]
    mixed = class_tasks(mnist, 2, seed=3, shuffle=True)
    assert [task.name for task in mixed] == ["mnist 1/2", "mnist 2/2"]
    labels = [label for task in mixed for label in task.about["labels"]]
    assert sorted(labels) == list(range(10)) != labels
    with pytest.raises(HatrackError, match="10 classes cannot be divided into 3"):
        class_tasks(mnist, 3)


def test_the_tasks_of_one_set_share_its_memory(mnist_folder: Path) -> None:
    mnist = load("mnist", mnist_folder)
    for task in class_tasks(mnist, 5):
        assert task.train._x is mnist.x
        assert task.test is not None
        assert task.test._x is mnist.x


def test_renumbering_gives_minus_one_outside_the_groups(mnist_folder: Path) -> None:
    labels = renumbered(load("mnist", mnist_folder), [[4, 2], [9]])
    assert labels[:10].tolist() == [-1, -1, 1, -1, 0, -1, -1, -1, -1, 0]


@pytest.mark.parametrize(
    ("owned", "wanted"), [(700, (450, 50)), (500, (450, 50)), (150, (135, 15)), (3, (2, 1)), (1, (1, 0))]
)
def test_a_quota_takes_its_numbers_or_their_proportion(owned: int, wanted: tuple[int, int]) -> None:
    rows = [np.arange(1000), np.arange(2000, 2000 + owned)]
    parts, test, _ = Quota(450, 50, 100).cut(rows, rows, classes=[0, 1], seed=0)
    mine = parts.train[parts.train >= 2000], parts.valid[parts.valid >= 2000]
    assert (len(mine[0]), len(mine[1])) == wanted
    assert not set(mine[0]) & set(mine[1])
    assert (test >= 2000).sum() == min(owned, 100)


def test_a_quota_depends_on_the_seed_and_not_on_the_other_classes() -> None:
    rows = [np.arange(100), np.arange(100, 200)]
    quota = Quota(20, 5, 10)
    alone, _, _ = quota.cut(rows, rows, [1], seed=7)
    both, _, _ = quota.cut(rows, rows, [0, 1], seed=7)
    np.testing.assert_array_equal(alone.train, both.train[both.train >= 100])
    other, _, _ = quota.cut(rows, rows, [1], seed=8)
    assert set(alone.train) != set(other.train)
