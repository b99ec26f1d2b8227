"""Stand-ins for the federated sets: fixed disjoint parts, and letters divided by how they lean and weigh."""

from __future__ import annotations

from itertools import pairwise
from math import hypot
from pathlib import Path

import numpy as np
import pytest
import torch

from hatrack import Task
from hatrack.data import tasks
from hatrack.data.image_set import load
from hatrack.data.stand_ins import slant, stroke
from hatrack.errors import HatrackError

from .make import write_set

CPU = torch.device("cpu")


def rows_of(task: Task) -> dict[str, list[int]]:
    """Rows of a set that `write_set` wrote, as its pictures say: train, valid and test."""
    found = {}
    for part in ("train", "valid", "test"):
        x, _ = getattr(task, part).on(CPU)
        found[part] = (x[:, 0, 0, 0].long() + 256 * x[:, 0, 0, 1].long()).tolist()
    return found


@pytest.mark.parametrize(("name", "classes", "shape"), [("fc-10", 2, (3, 32, 32)), ("fe-10", 26, (1, 28, 28))])
def test_parts_share_no_picture_and_stay_whatever_the_seed(
    name: str, classes: int, shape: tuple[int, ...], data: Path
) -> None:
    write_set(data, "smiles" if name == "fc-10" else "emnist_letters", train=40, test=20)
    made = {seed: tasks(f"{name}-stand-in", seed=seed, data=data) for seed in (0, 1)}
    assert [t.name for t in made[0]] != [t.name for t in made[1]]
    assert sorted(t.name for t in made[0]) == sorted(t.name for t in made[1])
    for part, whole in (("train", 40), ("test", 20)):
        parts = ("train", "valid") if part == "train" else ("test",)
        seen = [row for task in made[0] for p in parts for row in rows_of(task)[p]]
        first = 0 if part == "train" else 40 * classes
        assert sorted(seen) in (list(range(whole * classes)), list(range(first, first + whole * classes)))
    for task in made[0]:
        same = next(t for t in made[1] if t.name == task.name)
        both = [sorted(rows_of(t)["train"] + rows_of(t)["valid"]) for t in (task, same)]
        assert both[0] == both[1]
        assert rows_of(task)["test"] == rows_of(same)["test"]
        assert task.classes == classes
        assert task.train.on(CPU)[0].shape[1:] == shape
        assert task.train.on(CPU)[1].unique().tolist() == list(range(classes))


@pytest.mark.parametrize(
    ("name", "original", "rule"),
    [("fc-20", "fceleba", "parts at random"), ("fe-20", "femnist", "parts by slant and stroke")],
)
def test_a_stand_in_says_that_it_is_one(name: str, original: str, rule: str, data: Path) -> None:
    for one in ("smiles", "emnist_letters"):
        write_set(data, one, train=60, test=20)
    made = tasks(f"{name}-stand-in", data=data)
    assert len(made) == 20
    for task in made:
        assert task.name.endswith(f"/20 (for {original})")
        assert task.about["notes"][0] == f"stand-in for {original}: {rule}, of nobody in particular"
        assert any("train samples a class where the paper has" in note for note in task.about["notes"])


def test_the_papers_numbers_cap_a_part(data: Path) -> None:
    write_set(data, "smiles", train=2210, test=410)
    task = tasks("fc-10-stand-in", data=data)[0]
    assert (len(task.train), task.about["valid"], task.about["test"]) == (2 * 200, 2 * 20, 2 * 40)
    assert len(task.about["notes"]) == 1


def test_letters_are_divided_by_slant_and_then_by_stroke(data: Path) -> None:
    write_set(data, "emnist_letters", train=40, test=20)
    pictures = load("emnist_letters", data)
    lean, weight = slant(pictures.x[:, 0]), stroke(pictures.x[:, 0])
    made = sorted(tasks("fe-10-stand-in", data=data), key=lambda task: int(task.name.split()[1].split("/")[0]))
    for letter in range(26):
        parts = []
        for task in made:
            found = rows_of(task)
            parts.append([row for row in found["train"] + found["valid"] if pictures.y[row] == letter])
        assert [len(part) for part in parts] == [4] * 10
        pairs = [parts[i] + parts[i + 1] for i in range(0, 10, 2)]
        for left, right in pairwise(pairs):
            assert max(lean[left]) <= min(lean[right])
        for thin, thick in zip(parts[::2], parts[1::2], strict=True):
            assert max(weight[thin]) <= min(weight[thick])


@pytest.mark.parametrize("step", [-1, 0, 1])
def test_slant_is_how_far_a_bar_moves_from_row_to_row(step: int) -> None:
    picture = np.zeros((1, 28, 28), np.uint8)
    for row in range(9):
        picture[0, 8 + row, 12 + step * (row - 4)] = 200
    assert slant(picture) == pytest.approx(step)


def test_stroke_is_ink_over_outline() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (3, 6, 5)).astype(np.uint8)
    for picture, found in zip(pictures, stroke(pictures), strict=True):
        ink = {(i, j): 0.0 for i in range(-1, 7) for j in range(-1, 6)}
        ink |= {place: float(picture[place]) for place in np.ndindex(6, 5)}
        outline = sum(
            hypot(ink[i + 1, j] - ink[i, j], ink[i, j + 1] - ink[i, j]) for i in range(-1, 6) for j in range(-1, 5)
        )
        assert found == pytest.approx(sum(ink.values()) / outline)
    bars = np.zeros((2, 28, 28), np.uint8)
    bars[0, 4:24, 10:12] = bars[1, 4:24, 10:14] = 255
    thin, thick = stroke(bars)
    assert 0.8 < thin <= 1.0
    assert 1.6 < thick <= 2.0


def test_a_picture_without_ink_has_no_slant_and_no_stroke() -> None:
    nothing = np.zeros((1, 28, 28), np.uint8)
    assert (slant(nothing), stroke(nothing)) == (0.0, 0.0)


def test_too_few_pictures_are_refused(data: Path) -> None:
    write_set(data, "smiles", train=15, test=10)
    with pytest.raises(HatrackError, match="divided into 10 tasks: each needs 2 training pictures a class or more"):
        tasks("fc-10-stand-in", data=data)
