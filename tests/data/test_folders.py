from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hatrack.data import tasks
from hatrack.errors import HatrackError

from .make import pixels, png


def write(home: Path, shape: tuple[int, int, int], classes: int = 2, count: int = 20) -> Path:
    """Write a folder of pictures a class; those of a class are alike but for what `pixels` varies by row."""
    for label in range(classes):
        (home / f"class {label}").mkdir(parents=True)
        for row in range(count):
            (home / f"class {label}" / f"{row:02d}.png").write_bytes(png(pixels(row, label, shape)))
    return home


def test_pictures_of_colour_and_grey_and_of_any_size_become_tasks_of_one_shape(tmp_path: Path) -> None:
    cats, dogs = write(tmp_path / "c", (3, 40, 50)), write(tmp_path / "d", (1, 20, 16), classes=3)
    made = tasks("folders", seed=1, folders={"dogs": str(dogs), "cats": str(cats)}, shape=(3, 24, 24))
    assert [(task.name, task.classes) for task in made] == [("dogs", 3), ("cats", 2)]
    assert [(len(t.train), len(t.valid or ()), len(t.test or ())) for t in made] == [(41, 7, 12), (27, 5, 8)]
    assert all(task.train.first(1).shape == (1, 3, 24, 24) for task in made)
    assert made[0].about["class_names"] == ["class 0", "class 1", "class 2"]
    grey, colour = (task.train.on(torch.device("cpu"))[0] for task in made)
    assert bool((grey == grey[:, :1]).all())
    assert not bool((colour == colour[:, :1]).all())


def test_one_channel_makes_all_pictures_grey(tmp_path: Path) -> None:
    made = tasks("folders", folders={"cats": write(tmp_path / "c", (3, 40, 50))}, shape=[1, 20, 20])
    assert made[0].train.first(1).shape == (1, 1, 20, 20)


def test_parts_are_taken_where_there_are_some(tmp_path: Path) -> None:
    write(tmp_path / "c" / "train", (1, 20, 20), count=10)
    write(tmp_path / "c" / "test", (1, 20, 20), count=3)
    made = tasks("folders", folders={"cats": tmp_path / "c"})
    assert (len(made[0].train) + made[0].about["valid"], made[0].about["test"]) == (20, 6)


@pytest.mark.parametrize(
    ("place", "shape", "says"),
    [
        ("none", (3, 32, 32), "task 'cats': .*none is not a folder; give one"),
        ("empty", (3, 32, 32), "task 'cats': .*empty holds no class; give a folder"),
        ("c", (2, 32, 32), r"task 'cats': shape must be \(channels, height, width\) with 1 or 3 channels, got \(2, "),
        ("c", (3, 32), "task 'cats': shape must be"),
    ],
)
def test_what_is_wrong_is_said_of_its_task(tmp_path: Path, place: str, shape: tuple[int, ...], says: str) -> None:
    write(tmp_path / "c", (1, 20, 20), count=3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(HatrackError, match=says) as caught:
        tasks("folders", folders={"cats": tmp_path / place}, shape=shape)
    assert "\n" not in str(caught.value)
