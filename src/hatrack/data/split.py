"""Sets into tasks: classes grouped, labels renumbered, rows divided into training, validation and test."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hatrack.data.image_set import Pictures
from hatrack.data.inputs import Inputs
from hatrack.data.rows import Parts, Rows, groups_of, hold_out, shuffled
from hatrack.data.samples import Split
from hatrack.data.task import Task


@dataclass(frozen=True)
class Quota:
    """How many samples of a class train, validate and test, at most (SPG's tables)."""

    train: int
    valid: int
    test: int

    def cut(
        self, train: Sequence[Rows], test: Sequence[Rows], classes: Iterable[int], seed: int
    ) -> tuple[Parts, Rows, tuple[str, ...]]:
        """Return the rows of some classes by the seed, and a note for every part with fewer than the quota.

        `train` and `test` hold the rows of every class. A class with too few samples keeps the quota's
        proportion of training and validation.
        """
        parts: dict[str, list[Rows]] = {part: [] for part in vars(self)}
        for label in classes:
            rng = np.random.default_rng([seed, label])
            mixed, tested = rng.permutation(train[label]), rng.permutation(test[label])
            here = min(len(mixed), self.train + self.valid)
            held = min(here - 1, max(1, round(here * self.valid / (self.train + self.valid))))
            parts["valid"].append(mixed[:held])
            parts["train"].append(mixed[held:here])
            parts["test"].append(tested[: self.test])
        notes = [
            f"{least} {part} samples a class where the paper has {asked}"
            for part, asked in vars(self).items()
            if (least := min(map(len, parts[part]))) < asked
        ]
        joined = {part: np.sort(np.concatenate(rows)) for part, rows in parts.items()}
        return Parts(joined["train"], joined["valid"]), joined["test"], tuple(notes)


def renumbered(pictures: Pictures, groups: Sequence[Sequence[int]]) -> Tensor:
    """Return the labels counted from 0 within each group: one tensor that all tasks over the groups share."""
    lookup = np.full(len(pictures.names), -1, dtype=np.int64)
    for group in groups:
        lookup[list(group)] = np.arange(len(group))
    return torch.from_numpy(lookup[pictures.y])


def make_task(
    name: str,
    pictures: Pictures,
    parts: Parts,
    test: Rows,
    *,
    labels: Tensor,
    classes: Sequence[int],
    inputs: Inputs | None = None,
    notes: Sequence[str] = (),
) -> Task:
    """Return the task over these rows of `pictures`, with everything that went into it in `about`."""
    inputs = inputs or pictures.inputs
    about = {
        "set": pictures.name,
        "shape": list(pictures.shape),
        "labels": [int(label) for label in classes],
        "class_names": [pictures.names[label] for label in classes],
        "rows": checksum(parts.train, parts.valid, test, np.array(inputs.permutation or (), dtype=np.int64)),
        "notes": [*pictures.notes, *notes],
    }
    train, valid, tested = (
        Split(pictures.x, labels, torch.from_numpy(rows)) for rows in (parts.train, parts.valid, test)
    )
    return Task(name, train, valid, tested, classes=len(classes), inputs=inputs, about=about)


def checksum(*rows: Rows) -> str:
    """Return a short checksum of the rows of the parts and what else is given: equal splits, equal digests."""
    digest = hashlib.sha256()
    for part in rows:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part.astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def tasks_of(
    pictures: Pictures,
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    cut: Callable[[Rows, int], Parts],
    notes: Sequence[str] = (),
) -> list[Task]:
    """Return one task a group of classes; `cut(rows, position)` divides a group's training rows.

    Where the set has a validation part, that validates, and nothing is divided.
    """
    labels = renumbered(pictures, groups)
    made = []
    for position, (name, classes) in enumerate(zip(names, groups, strict=True)):

        def own(rows: Rows, classes: Sequence[int] = classes) -> Rows:
            return rows[np.isin(pictures.y[rows], classes)]

        train, test, valid = own(pictures.train), own(pictures.test), pictures.valid
        parts = cut(train, position) if valid is None else Parts(train, own(valid))
        made.append(make_task(name, pictures, parts, test, labels=labels, classes=classes, notes=notes))
    return made


def range_names(name: str, groups: Sequence[Sequence[int]]) -> list[str]:
    """Return `name first-last` for groups of neighbouring classes."""
    return [f"{name} {group[0]}-{group[-1]}" for group in groups]


def class_tasks(
    pictures: Pictures,
    tasks: int,
    seed: int = 0,
    valid: float = 0.15,
    shuffle: bool = False,
    name: str | None = None,
) -> list[Task]:
    """Return a set in `tasks` tasks of equally many classes, in label order or shuffled by the seed.

    Their names begin with `name`, else with the set's.
    """
    label = name or pictures.name
    count = len(pictures.names)
    order = shuffled(count, seed).tolist() if shuffle else list(range(count))
    groups = groups_of(order, tasks, pictures.name)
    numbered = [f"{label} {position}/{tasks}" for position in range(1, tasks + 1)]
    names = numbered if shuffle else range_names(label, groups)
    return tasks_of(pictures, groups, names, lambda rows, position: hold_out(rows, valid, seed, position))


def one_task(
    pictures: Pictures,
    name: str | None = None,
    classes: Sequence[int] | None = None,
    seed: int = 0,
    valid: float = 0.15,
) -> Task:
    """Return a whole set, or some of its classes, as one task."""
    chosen = list(range(len(pictures.names))) if classes is None else list(classes)
    label = name or pictures.name
    return tasks_of(pictures, [chosen], [label], lambda rows, _: hold_out(rows, valid, seed))[0]
