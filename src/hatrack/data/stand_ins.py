"""Stand-ins for F-CelebA and F-EMNIST (SPG) where LEAF's files are not at hand: similar tasks, but nobody's own.

Of neither set it is known who wrote a letter or whose face it is. So a task is a part of the pictures that is fixed by
a rule, the same for every seed:

smiles           dealt out at random: parts are alike, where people differ
emnist_letters   by hand: every letter's pictures in five groups by slant, each of these in as many by stroke as give
                 the number of tasks; a part's letters lean and weigh alike, as one writer's would

    slant    μ₁₁/μ₀₂ of the ink: how far a letter moves to the right, row by row downwards
    stroke   Σp/Σ|∇p|: ink over outline, in pixels about half a stroke's width
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hatrack.data.cache import Bytes
from hatrack.data.image_set import Pictures, load
from hatrack.data.locate import Folder
from hatrack.data.rows import Rows, groups_of, rows_of_each, shuffled
from hatrack.data.split import Quota, make_task, renumbered
from hatrack.data.task import Task
from hatrack.errors import HatrackError

SLANTS = 5

Values = npt.NDArray[np.float64]
Divide = Callable[[Pictures, Rows, int], list[Rows]]  # the rows of a class into so many parts


def smile_parts(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return smiling or not, a fixed random part of the pictures a task: in place of F-CelebA."""
    pictures = load("smiles", data).rgb()
    return _tasks(pictures, "fceleba", "parts at random", _at_random, Quota(200, 20, 40), tasks, seed)


def letter_hands(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return 26 letters, those of like slant and stroke a task: in place of F-EMNIST."""
    groups_of(range(tasks), SLANTS, f"letters in {tasks} parts of {SLANTS} slants")
    pictures = load("emnist_letters", data)
    return _tasks(pictures, "femnist", "parts by slant and stroke", _by_hand, Quota(50, 5, 10), tasks, seed)


def _tasks(
    pictures: Pictures, original: str, rule: str, divide: Divide, quota: Quota, tasks: int, seed: int
) -> list[Task]:
    count = len(pictures.names)
    classes = range(count)
    labels = renumbered(pictures, [classes])
    train, test = (
        [divide(pictures, rows, tasks) for rows in rows_of_each(pictures.y, own, count)]
        for own in (pictures.train, pictures.test)
    )
    for rows, least, part in ((train, 2, "training"), (test, 1, "test")):
        if min(len(own) for parts in rows for own in parts) < least:
            raise HatrackError(
                f"{pictures.name} cannot be divided into {tasks} tasks: each needs {least} {part} pictures a class or "
                f"more."
            )
    made = []
    for position in shuffled(tasks, seed).tolist():
        trained, asked = ([own[position] for own in rows] for rows in (train, test))
        parts, tested, notes = quota.cut(trained, asked, classes, seed)
        name = f"{pictures.name} {position + 1}/{tasks} (for {original})"
        notes = (f"stand-in for {original}: {rule}, of nobody in particular", *notes)
        made.append(make_task(name, pictures, parts, tested, labels=labels, classes=classes, notes=notes))
    return made


def _at_random(pictures: Pictures, rows: Rows, tasks: int) -> list[Rows]:
    return np.array_split(np.random.default_rng(0).permutation(rows), tasks)


def _by_hand(pictures: Pictures, rows: Rows, tasks: int) -> list[Rows]:
    leaning = np.array_split(_ordered(rows, slant(pictures.x[rows, 0])), SLANTS)
    return [
        hand
        for alike in leaning
        for hand in np.array_split(_ordered(alike, stroke(pictures.x[alike, 0])), tasks // SLANTS)
    ]


def _ordered(rows: Rows, by: Values) -> Rows:
    return rows[np.argsort(by, kind="stable")]


def slant(pictures: Bytes) -> Values:
    """Return μ₁₁/μ₀₂ of every picture (n, height, width), 0 where there is no ink."""
    ink = pictures.astype(np.float64)
    total = np.maximum(ink.sum((1, 2)), 1)
    down, across = np.indices(ink.shape[1:])
    y, x = (
        axis - ((ink * axis).sum((1, 2)) / total)[:, None, None] for axis in (down.astype(float), across.astype(float))
    )
    spread = (ink * y * y).sum((1, 2))
    moved = (ink * x * y).sum((1, 2))
    return _ratio(moved, spread)


def stroke(pictures: Bytes) -> Values:
    """Return Σp/Σ|∇p| of every picture (n, height, width), 0 where there is no ink."""
    ink = np.pad(pictures.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    outline = np.hypot(np.diff(ink, axis=1)[:, :, :-1], np.diff(ink, axis=2)[:, :-1, :]).sum((1, 2))
    return _ratio(ink.sum((1, 2)), outline)


def _ratio(above: Values, below: Values) -> Values:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
