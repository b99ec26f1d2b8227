"""Which rows go where: pure rules over row numbers and labels, decided by a seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hatrack.errors import HatrackError

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """Rows for training and validation."""

    train: Rows
    valid: Rows


def rows_of_each(y: Rows, rows: Rows, classes: int) -> list[Rows]:
    """Return, for every class, those of `rows` that carry its label, in one pass over the labels."""
    labels = y[rows]
    order = np.argsort(labels, kind="stable")
    return np.split(rows[order], np.searchsorted(labels[order], np.arange(1, classes)))


def shuffled(count: int, seed: int) -> Rows:
    """Return 0..count−1 as HAT's code does: sklearn.utils.shuffle(arange(count), random_state=seed)."""
    return np.random.RandomState(seed).permutation(count).astype(np.int64)


def fixed_test(y: Rows, share: float) -> tuple[Rows, Rows]:
    """Return train and test rows for a set without an official split: by class, the same for every seed."""
    rng = np.random.default_rng(0)
    train, test = [], []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        cut = round(share * len(rows))
        test.append(rows[:cut])
        train.append(rows[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def hold_out(rows: Rows, share: float, seed: int, salt: int = 0) -> Parts:
    """Split `rows` into training and validation by the seed alone; `salt` tells tasks of one seed apart."""
    mixed = np.random.default_rng([seed, salt]).permutation(rows)
    return _cut(mixed, max(1, round(share * len(rows))))


def hold_out_as_hat(rows: Rows, share: float, seed: int) -> Parts:
    """Split `rows` as HAT's code does: validation is the first ⌊share·n⌋ rows, shuffled by the seed."""
    return _cut(rows[shuffled(len(rows), seed)], max(1, int(share * len(rows))))


def _cut(mixed: Rows, valid: int) -> Parts:
    if len(mixed) < 2:
        raise HatrackError(f"{len(mixed)} training sample(s) cannot be divided into training and validation.")
    return Parts(train=np.sort(mixed[valid:]), valid=np.sort(mixed[:valid]))


def groups_of(classes: Sequence[int], tasks: int, what: str) -> list[list[int]]:
    """Return `classes` in `tasks` groups of equal size, in their order."""
    if tasks < 1 or len(classes) % tasks:
        raise HatrackError(f"{what}: {len(classes)} classes cannot be divided into {tasks} tasks of equal size.")
    size = len(classes) // tasks
    return [list(classes[start : start + size]) for start in range(0, len(classes), size)]
