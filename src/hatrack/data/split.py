"""Which samples go where: class membership, a test part that never changes, a validation part from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hatrack.data.task import Inputs, Split, Task

Rows = npt.NDArray[np.int64]


def by_class(y: Rows, classes: Sequence[int]) -> Rows:
    """Return the positions in `y` whose label is one of `classes`."""
    return np.flatnonzero(np.isin(y, classes))


def fixed_test(y: Rows, share: float) -> tuple[Rows, Rows]:
    """Return train and test rows for a set without an official split: the same for every seed, class by class."""
    rng = np.random.default_rng(0)
    train, test = [], []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        cut = round(share * len(rows))
        test.append(rows[:cut])
        train.append(rows[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


@dataclass(frozen=True)
class Parts:
    """Rows for training and validation."""

    train: Rows
    valid: Rows

    def task(
        self, name: str, x: npt.NDArray[np.uint8], y: Rows, test: Rows, classes: Sequence[int], inputs: Inputs
    ) -> Task:
        """Return the task over these rows, its labels renumbered 0, 1, … in the order of `classes`."""
        lookup = np.full(int(y.max()) + 1, -1, dtype=np.int64)
        lookup[list(classes)] = np.arange(len(classes))
        labels = torch.from_numpy(lookup[y])
        train, valid, tested = (
            Split(x, labels, torch.from_numpy(rows)) for rows in (self.train, self.valid, test)
        )
        return Task(name, train, valid, tested, classes=len(classes), inputs=inputs)


def hold_out(rows: Rows, share: float, seed: int, salt: int = 0) -> Parts:
    """Split `rows` into training and validation by the seed alone; `salt` tells tasks of one seed apart."""
    mixed = np.random.default_rng([seed, salt]).permutation(rows)
    cut = max(1, round(share * len(rows)))
    return Parts(train=np.sort(mixed[cut:]), valid=np.sort(mixed[:cut]))
