from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.utils import shuffle

from hatrack.data import tasks
from hatrack.data.mixture import MEMBERS
from hatrack.errors import HatrackError

from .make import pixels, write_set

# 8 training pictures a class are enough for a validation part of 15 % in every set.
ORDER_OF_SEED_0 = ["facescrub", "mnist", "cifar100", "notmnist", "svhn", "cifar10", "gtsrb", "fashion_mnist"]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    for name in (*MEMBERS, "yale_faces"):
        write_set(folder, name, train=2, test=1)
    return folder


def test_the_published_order_and_shape(sets: Path) -> None:
    made = tasks("mixture", seed=0, data=sets)
    assert [task.name for task in made] == ORDER_OF_SEED_0
    assert [task.classes for task in made] == [100, 10, 100, 10, 10, 10, 43, 10]
    for task in made:
        assert task.train.first(1).shape == (1, 3, 32, 32)
        assert task.about["notes"] == []
    assert made[1].about["mean"] == [0.1]
    assert made[7].about["std"] == [0.3318]


def test_a_grey_set_is_padded_and_repeated(sets: Path) -> None:
    mnist = tasks("mixture", seed=0, data=sets)[1]
    assert mnist.test is not None
    x, y = mnist.test.on(torch.device("cpu"))
    wanted = np.pad([pixels(row, row, (1, 28, 28)) for row in range(10)], ((0, 0), (0, 0), (2, 2), (2, 2)))
    np.testing.assert_array_equal(x.numpy(), np.repeat(wanted, 3, axis=1))
    assert y.tolist() == list(range(10))


def test_validation_is_the_published_first_part(sets: Path) -> None:
    task = next(task for task in tasks("mixture", seed=5, data=sets) if task.name == "cifar100")
    assert task.valid is not None
    x, _ = task.valid.on(torch.device("cpu"))
    rows = np.sort(shuffle(np.arange(200), random_state=5)[:30])
    np.testing.assert_array_equal(x.numpy(), [pixels(row, row % 100, (3, 32, 32)) for row in rows])
    assert len(task.train) == 170


@pytest.mark.parametrize("without", ["facescrub, svhn", ["facescrub", "svhn"]])
def test_members_left_out_keep_the_others_in_order_and_are_noted(sets: Path, without: str | list[str]) -> None:
    made = tasks("mixture", seed=0, data=sets, without=without)
    assert [task.name for task in made] == [n for n in ORDER_OF_SEED_0 if n not in ("facescrub", "svhn")]
    for task in made:
        assert task.about["notes"] == ["mixture without facescrub", "mixture without svhn"]


@pytest.mark.parametrize("replace", ["facescrub=yale_faces", {"facescrub": "yale_faces"}])
def test_a_stand_in_takes_the_members_place_and_both_are_named(sets: Path, replace: str | dict[str, str]) -> None:
    made = tasks("mixture", seed=0, data=sets, replace=replace)
    assert [task.name for task in made] == ["yale_faces (for facescrub)", *ORDER_OF_SEED_0[1:]]
    assert made[0].classes == 38
    assert made[0].about["set"] == "yale_faces"
    assert all(t.about["notes"] == ["mixture with yale_faces in place of facescrub"] for t in made)
    json.dumps([task.about for task in made])


def test_a_stand_in_for_a_member_left_out_changes_nothing(sets: Path) -> None:
    """As hat-fig7 asks for it: a member a benchmark, and one stand-in for all of them."""
    alone = [m for m in MEMBERS if m != "mnist"]
    made, plain = (tasks("mixture", data=sets, without=alone, **r) for r in ({"replace": "svhn=yale_faces"}, {}))
    assert [t.about for t in made] == [t.about for t in plain]


def test_a_missing_member_says_how_to_go_on(sets: Path, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "mnist").symlink_to(sets / "mnist")
    with pytest.raises(HatrackError, match=r"\(without=facescrub\).*\(replace=facescrub=yale_faces\)"):
        tasks("mixture", seed=0, data=tmp_path / "few")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"without": "faces"}, "unknown member of mixture 'faces'"),
        ({"replace": "facescrub=yale"}, "unknown set 'yale'; did you mean 'yale_faces'"),
        ({"replace": "facescrub"}, "replace takes member=set"),
        ({"replace": "facescrub=mnist"}, "no set twice"),
        ({"without": list(MEMBERS)}, "at least one set"),
        ({"with": "mnist"}, "unknown option of benchmark 'mixture' 'with'; did you mean 'without'"),
    ],
)
def test_wrong_options_are_refused(sets: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(HatrackError, match=words):
        tasks("mixture", seed=0, data=sets, **options)
