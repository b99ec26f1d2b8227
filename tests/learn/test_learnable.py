"""Learnable parameters against SPG's Table 10, to the digit, on the sequences of that paper."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hatrack
from hatrack.methods import METHODS
from hatrack.nets import build
from hatrack.targets import Classification

COLOUR, GREY = (3, 32, 32), (1, 28, 28)
# tasks, classes of each, shape of an input, SupSup and UCL as printed (of UCL on FE-10 and FE-20 the text has no whole)
TABLE_10 = [
    ("C-10", 10, 10, COLOUR, 65_198_080, 6_713_316),
    ("C-20", 20, 5, COLOUR, 130_191_360, 6_713_316),
    ("T-10", 10, 20, COLOUR, 65_402_880, 6_918_216),
    ("T-20", 20, 10, COLOUR, 130_396_160, 6_918_216),
    ("I-100", 100, 10, COLOUR, 651_980_800, 8_557_416),
    ("FC-10", 10, 2, COLOUR, 65_034_240, 6_549_396),
    ("FC-20", 20, 2, COLOUR, 130_068_480, 6_590_376),
    ("FE-10", 10, 62, GREY, 65_828_480, None),
    ("FE-20", 20, 62, GREY, 131_656_960, None),
]


def learnable(method: str, tasks: int, classes: int, shape: tuple[int, ...]) -> int:
    """Return the count after so many tasks; what training does to the values is no matter."""
    learner = hatrack.Learner(build("alexnet", shape), method=METHODS[method]())
    learner.model.meet(torch.zeros(1, *shape))
    learner.method.attach(learner.model)
    for task in range(tasks):
        learner.model.add_task(Classification(classes), torch.Generator())
        learner.method.task = task
    return learner.learnable_count


@pytest.mark.parametrize(("name", "tasks", "classes", "shape", "supsup", "ucl"), TABLE_10)
def test_table_10(name: str, tasks: int, classes: int, shape: tuple[int, ...], supsup: int, ucl: int | None) -> None:
    biases = tasks * classes  # of our heads; the paper's SupSup has none
    assert learnable("supsup", tasks, classes, shape) == supsup + biases
    if ucl is not None:
        assert learnable("ucl", tasks, classes, shape) == ucl


def test_plain_training_and_hat() -> None:
    """By hand: weights and biases of five layers, two heads of 3 classes; HAT's embedding has an entry a unit."""
    units = 64 + 128 + 256 + 2048 + 2048
    weights = 64 * 3 * 16 + 128 * 64 * 9 + 256 * 128 * 4 + 1024 * 2048 + 2048 * 2048
    plain = weights + units + 2 * 3 * 2049
    assert learnable("sgd", 2, 3, COLOUR) == plain
    assert learnable("hat", 2, 3, COLOUR) == plain + 2 * units


@pytest.mark.parametrize("method", ["hat", "pmask", "supsup", "ucl", "wsn"])
def test_a_learner_that_was_loaded_counts_alike(method: str, tmp_path: Path) -> None:
    learner = hatrack.Learner(build("mlp", (1, 8, 8), widths=[8]), method=METHODS[method](), epochs=1, device="cpu")
    for task in hatrack.tasks("split-digits")[:2]:
        learner.learn(task)
    learner.save(tmp_path / "kept")
    loaded = hatrack.load(tmp_path / "kept", build("mlp", (1, 8, 8), widths=[8]))
    assert loaded.learnable_count == learner.learnable_count > 0
