from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack.data import class_tasks, folder, one_task, parquet
from hatrack.errors import HatrackError

from .make import entries, pixels, png, write_parquet

CPU = torch.device("cpu")
SHAPE = (3, 6, 5)


def write_class(place: Path, label: int, count: int, shape: tuple[int, int, int] = SHAPE) -> None:
    place.mkdir(parents=True)
    for row in range(count):
        (place / f"{row:03d}.png").write_bytes(png(pixels(row, label, shape)))


def write_classes(root: Path, count: int) -> None:
    for label, name in enumerate(("ant", "bee", "cow")):
        write_class(root / name, label, count)


def test_a_folder_with_train_and_test(tmp_path: Path) -> None:
    write_classes(tmp_path / "animals" / "train", 8)
    write_classes(tmp_path / "animals" / "test", 2)
    animals = folder(tmp_path / "animals")
    assert animals.name == "animals"
    assert animals.names == ("ant", "bee", "cow")
    assert animals.shape == SHAPE
    wanted = [pixels(row, label, SHAPE) for label in range(3) for row in range(8)]
    np.testing.assert_array_equal(animals.x[animals.train], wanted)
    assert animals.y[animals.test].tolist() == [0, 0, 1, 1, 2, 2]
    trained = np.array(wanted) / 255
    np.testing.assert_allclose(animals.inputs.mean, trained.mean(axis=(0, 2, 3)), atol=1e-4)
    np.testing.assert_allclose(animals.inputs.std, trained.std(axis=(0, 2, 3)), atol=1e-4)


def test_a_folder_of_classes_alone_gives_a_fifth_of_each_to_the_test(tmp_path: Path) -> None:
    write_classes(tmp_path / "animals", 10)
    animals = folder(tmp_path / "animals")
    assert np.bincount(animals.y[animals.test]).tolist() == [2, 2, 2]
    assert len(animals.train) == 24
    task = one_task(animals, seed=1)
    assert task.about["notes"] == ["no test part: 20% of every class of the training pictures tests"]
    assert [t.name for t in class_tasks(animals, 3)] == ["animals 0-0", "animals 1-1", "animals 2-2"]


def test_pictures_of_other_sizes_are_scaled_on_request_and_refused_without(tmp_path: Path, own_cache: Path) -> None:
    write_classes(tmp_path / "animals", 3)
    odd = tmp_path / "animals" / "cow" / "odd.jpg"
    odd.write_bytes(png(pixels(0, 0, (3, 9, 9)), "JPEG"))
    with pytest.raises(HatrackError, match=r"odd\.jpg: the picture is 9 wide and 9 high, expected 5 and 6"):
        folder(tmp_path / "animals")
    assert entries(own_cache) == []
    assert folder(tmp_path / "animals", shape=(1, 4, 4)).shape == (1, 4, 4)


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    write_classes(tmp_path / "animals", 2)
    (tmp_path / "animals" / ".hidden").mkdir()
    (tmp_path / "animals" / "ant" / "notes.txt").write_text("no picture")
    (tmp_path / "animals" / "README").write_text("no class")
    assert len(folder(tmp_path / "animals").x) == 6


def test_a_changed_folder_is_read_again(tmp_path: Path) -> None:
    write_classes(tmp_path / "animals", 2)
    assert len(folder(tmp_path / "animals").x) == 6
    (tmp_path / "animals" / "ant" / "new.png").write_bytes(png(pixels(9, 0, SHAPE)))
    assert len(folder(tmp_path / "animals").x) == 7


@pytest.mark.parametrize("part", ["val", "valid", "validation"])
def test_beside_a_test_part_the_validation_part_validates(part: str, tmp_path: Path) -> None:
    for number, name in enumerate(("train", part, "test")):
        write_classes(tmp_path / "animals" / name, 5 - number)
    animals = folder(tmp_path / "animals")
    assert animals.notes == ()
    assert animals.valid is not None
    assert [np.bincount(animals.y[rows]).tolist() for rows in (animals.train, animals.valid, animals.test)] == [
        [5, 5, 5],
        [4, 4, 4],
        [3, 3, 3],
    ]
    np.testing.assert_allclose(animals.inputs.mean, (animals.x[animals.train] / 255).mean(axis=(0, 2, 3)), atol=1e-4)
    again = folder(tmp_path / "animals")  # out of the cache
    assert again.valid is not None
    np.testing.assert_array_equal(again.valid, animals.valid)
    task = one_task(animals, seed=3)
    assert (len(task.train), len(task.valid or ()), len(task.test or ())) == (15, 12, 9)
    second = class_tasks(animals, 3)[1]
    assert second.valid is not None
    x, y = second.valid.on(CPU)
    assert y.tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(x, [pixels(row, 1, SHAPE) for row in range(4)])


def test_without_a_test_part_the_validation_part_tests_and_others_are_noted(tmp_path: Path) -> None:
    for part in ("train", "valid", "val"):
        write_classes(tmp_path / "animals" / part, 3)
    animals = folder(tmp_path / "animals")
    assert animals.notes == ("its part 'val' is not used",)
    assert animals.valid is None
    assert len(animals.test) == 9


def test_a_class_that_does_not_validate_is_refused(tmp_path: Path) -> None:
    for part in ("train", "test", "val"):
        write_classes(tmp_path / "animals" / part, 3)
    for file in (tmp_path / "animals" / "val" / "bee").iterdir():
        file.unlink()
    with pytest.raises(HatrackError, match=r"val/bee: class 1 \('bee'\) has no picture"):
        folder(tmp_path / "animals")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: None, "is not a folder"),
        (lambda root: root.mkdir(), "holds no class"),
        (lambda root: (write_classes(root, 2), (root / "dog").mkdir()), r"class 3 \('dog'\) has no picture"),
        (
            lambda root: (write_classes(root / "train", 2), write_class(root / "test" / "dog", 0, 1)),
            "no class of that name trains",
        ),
        (
            lambda root: (write_classes(root, 2), (root / "ant" / "000.png").write_bytes(b"x")),
            r"000\.png: the picture is broken",
        ),
    ],
)
def test_what_is_no_folder_of_classes_is_refused(tmp_path: Path, own_cache: Path, make, words: str) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "animals")
    with pytest.raises(HatrackError, match=words):
        folder(tmp_path / "animals")
    assert entries(own_cache) == []


def test_parquet_in_the_hubs_layout(tmp_path: Path) -> None:
    home = tmp_path / "birds" / "data"
    for shard in range(2):
        write_parquet(
            home / f"train-{shard:05d}-of-00002.parquet", [0, 1] * 5, SHAPE, names=["owl", "tit"], start=10 * shard
        )
    write_parquet(home / "validation-00000-of-00001.parquet", [1, 0], SHAPE, names=["owl", "tit"])
    birds = parquet(tmp_path / "birds")
    assert (birds.name, birds.names, len(birds.train), len(birds.test)) == ("birds", ("owl", "tit"), 20, 2)
    np.testing.assert_array_equal(birds.x[birds.train], [pixels(row, row % 2, SHAPE) for row in range(20)])
    assert parquet(tmp_path / "birds", shape=(1, 8, 8)).shape == (1, 8, 8)


def test_parquet_with_three_parts(tmp_path: Path) -> None:
    for number, part in enumerate(("train", "validation", "test")):
        write_parquet(
            tmp_path / f"{part}-0.parquet", [0, 1] * (4 - number), SHAPE, names=["owl", "tit"], start=50 * number
        )
    birds = parquet(tmp_path)
    assert birds.valid is not None
    assert (len(birds.train), len(birds.valid), len(birds.test)) == (8, 6, 4)
    np.testing.assert_array_equal(birds.x[birds.valid], [pixels(50 + row, row % 2, SHAPE) for row in range(6)])


def test_parquet_without_class_names_needs_their_number(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", [0, 1, 2] * 5, SHAPE, label="kind")
    with pytest.raises(HatrackError, match="no label column"):
        parquet(tmp_path)
    with pytest.raises(HatrackError, match="classes=N"):
        parquet(tmp_path, label="kind")
    held = parquet(tmp_path, label="kind", classes=3)
    assert held.names == ("0", "1", "2")
    assert len(held.test) == 3


def test_a_folder_without_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match=r"no train-\*\.parquet"):
        parquet(tmp_path)


def test_pictures_without_contrast_do_not_divide_by_zero(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for row in range(5):
            (tmp_path / name / f"{row}.png").write_bytes(png(np.full((1, 4, 4), 7, np.uint8)))
    task = one_task(folder(tmp_path))
    x, _ = task.train.on(CPU)
    assert torch.isfinite(task.inputs.on(CPU)(x)).all()
