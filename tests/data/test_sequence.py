from __future__ import annotations

import re
from pathlib import Path

import pytest

from hatrack.data import tasks
from hatrack.errors import HatrackError

from .make import pixels, png, write_parquet, write_set

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_set(folder, "mnist", train=8, test=2)
    write_set(folder, "cifar10", train=8, test=2)
    return folder


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def test_sets_classes_splits_and_own_pictures_in_the_order_written(sets: Path, tmp_path: Path) -> None:
    for label, name in enumerate(("ant", "bee")):
        (tmp_path / "animals" / name).mkdir(parents=True)
        for row in range(10):
            raw = png(pixels(row, label, (3, 40, 50)))
            (tmp_path / "animals" / name / f"{row}.png").write_bytes(raw)
    write_parquet(tmp_path / "birds" / "train.parquet", [0, 1] * 10, (1, 9, 9), label="kind")
    file = write(
        tmp_path,
        """
        shape = [3, 32, 32]
        valid = 0.25

        [[task]]
        set = "mnist"
        name = "small digits"
        classes = [0, 1, "mnist 2"]

        [[task]]
        set = "cifar10"
        split = 5

        [[task]]
        folder = "animals"

        [[task]]
        parquet = "birds"
        label = "kind"
        number_of_classes = 2
        """,
    )
    made = tasks("sequence", seed=1, data=sets, file=file)
    assert [task.name for task in made] == [
        "small digits",
        *[f"cifar10 {a}-{a + 1}" for a in range(0, 10, 2)],
        "animals",
        "birds",
    ]
    assert [task.classes for task in made] == [3, 2, 2, 2, 2, 2, 2, 2]
    assert all(task.train.first(1).shape == (1, 3, 32, 32) for task in made)
    assert made[0].about["labels"] == [0, 1, 2]
    assert made[0].about["mean"] == [0.1]
    assert (len(made[0].train), made[0].about["valid"]) == (18, 6)


def test_a_benchmark_can_be_part_of_a_sequence(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [[task]]
        benchmark = "split-digits"

        [[task]]
        benchmark = "permuted-digits"
        options = { tasks = 2 }
        """,
    )
    made = tasks("sequence", seed=4, file=file)
    assert [task.name for task in made][4:] == ["digits 8-9", "digits permutation 1", "digits permutation 2"]
    assert made[0].about == tasks("split-digits", seed=4)[0].about


def test_the_file_in_the_docs_works_as_printed(sets: Path, tmp_path: Path) -> None:
    printed = re.search(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert printed is not None
    names = [{1: "aquarium_fish", 32: "flatfish"}.get(label, f"class {label}") for label in range(100)]
    for part, count in (("train", 3), ("test", 1)):
        file = tmp_path / "sets" / "cifar100" / f"{part}-00000-of-00001.parquet"
        write_parquet(file, list(range(100)) * count, (3, 32, 32), names=names)
    for name in ("mnist", "cifar10"):
        (tmp_path / "sets" / name).symlink_to(sets / name)
    for label, name in enumerate(("owl", "wren")):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for row in range(10):
            (tmp_path / "birds" / name / f"{row}.png").write_bytes(png(pixels(row, label, (3, 40, 50))))
    write_parquet(tmp_path / "signs" / "train.parquet", list(range(12)) * 10, (1, 9, 9), label="kind")
    made = tasks("sequence", data=tmp_path / "sets", file=write(tmp_path, printed[1]))
    fives = [f"cifar10 {a}-{a + 1}" for a in range(0, 10, 2)]
    assert [task.name for task in made] == ["mnist", "fish", *fives, "birds", "signs", *[f"again {f}" for f in fives]]


def test_a_name_beside_split_stands_in_place_of_the_sets(tmp_path: Path) -> None:
    text = '[[task]]\nset = "digits"\nsplit = 2\n[[task]]\nset = "digits"\nsplit = 2\nname = "again"\n'
    made = tasks("sequence", file=write(tmp_path, text))
    assert [task.name for task in made] == ["digits 0-4", "digits 5-9", "again 0-4", "again 5-9"]
    assert made[2].about["set"] == "digits"


def test_shuffle_orders_by_the_seed(tmp_path: Path) -> None:
    file = write(tmp_path, 'shuffle = true\n[[task]]\nset = "digits"\nsplit = 5\n')
    orders = [[task.name for task in tasks("sequence", seed=seed, file=file)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[task]\n", "is not TOML"),
        ("", "lists no task"),
        ("tasks = 3\n", "unknown key in .* 'tasks'; did you mean 'task'"),
        ("[[task]]\nname = 'x'\n", "task 1: give one of set, folder, parquet, benchmark, got name"),
        ("[[task]]\nset = 'digits'\nfolder = 'x'\n", "task 1: give one of"),
        ("[[task]]\nset = 'digit'\n", "unknown set 'digit'; did you mean 'digits'"),
        ("[[task]]\nset = 'digits'\nklasses = [1]\n", "unknown key in .*task 1 'klasses'; did you mean 'classes'"),
        ("[[task]]\nset = 'digits'\nclasses = [1, 12]\n", "task 1: class 12 is outside 0..9"),
        ("[[task]]\nset = 'digits'\nclasses = ['ten']\n", "unknown class in .*task 1 'ten'"),
        ("[[task]]\nset = 'digits'\nclasses = [1, 1]\n", "none twice"),
        ("[[task]]\nset = 'digits'\nname = 3\n", "task 1: name must be a text, got 3"),
        ("[[task]]\nset = 'digits'\nclasses = '12'\n", "task 1: classes must be a list .*, got '12'"),
        ("[[task]]\nset = 'digits'\nclasses = 12\n", "task 1: classes must be a list .*, got 12"),
        ("[[task]]\nset = 'digits'\nclasses = [1]\nsplit = 5\n", "not both"),
        ("[[task]]\nset = 'digits'\nsplit = 3\n", "10 classes cannot be divided into 3"),
        ("[[task]]\nset = 'digits'\n[[task]]\nset = 'digits'\n", "two tasks are called 'digits'; give one .* a `name`"),
        ("[[task]]\nset = 'digits'\nsplit = '5'\n", "task 1: split must be a whole number, got '5'"),
        ("[[task]]\nset = 3\n", "task 1: set must be a text, got 3"),
        ("[[task]]\nfolder = 3\n", "task 1: folder must be a text, got 3"),
        ("[[task]]\nparquet = 'x'\nnumber_of_classes = '4'\n", "number_of_classes must be a whole number, got '4'"),
        ("[[task]]\nbenchmark = 'split-digits'\noptions = 3\n", "task 1: options must be a table, .*, got 3"),
        ("[[task]]\nbenchmark = 'permuted-digits'\noptions = {tasks = 2.5}\n", "must be a whole number, got 2.5"),
        ("shuffle = 'false'\n[[task]]\nset = 'digits'\n", "shuffle must be true or false, got 'false'"),
        ("valid = 2.0\n[[task]]\nset = 'digits'\n", "valid must be a share"),
        ("shape = [3, 32]\n[[task]]\nset = 'digits'\n", "shape must be"),
        ("shape = [3, 32, 32]\n[[task]]\nbenchmark = 'split-digits'\n", "a benchmark's tasks keep their shape"),
        ("[[task]]\nset = 'digits'\n[[task]]\nset = 'mnist'\n", r"task 'mnist' has pictures of shape \[1, 28, 28\]"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(sets: Path, tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(HatrackError, match=words) as caught:
        tasks("sequence", file=write(tmp_path, text), data=sets)
    assert "\n" not in str(caught.value)


def test_a_missing_file_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HatrackError, match="cannot be read"):
        tasks("sequence", file=tmp_path / "none.toml")
    with pytest.raises(HatrackError, match="'sequence' needs the option 'file'"):
        tasks("sequence")
