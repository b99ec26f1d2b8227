"""Sequences that divide one set, or two, by class: digits, MNIST, CIFAR."""

from __future__ import annotations

import os

from hatrack.data.pictures import EMBEDDED, load
from hatrack.data.rows import Parts, Rows, groups_of, hold_out, hold_out_as_hat, shuffled
from hatrack.data.split import range_names, tasks_of
from hatrack.data.task import Task

Folder = str | os.PathLike[str] | None


def split_digits(seed: int) -> list[Task]:
    """Return the embedded 8×8 digits in five tasks of two classes."""
    groups = groups_of(range(10), 5, EMBEDDED)

    def cut(rows: Rows, position: int) -> Parts:
        return hold_out(rows, share=0.15, seed=seed, salt=groups[position][0])

    return tasks_of(load(EMBEDDED), groups, range_names(EMBEDDED, groups), cut)


def _neighbours(name: str, tasks: int, seed: int, data: Folder) -> list[Task]:
    """Return a set in tasks of neighbouring classes, 10 % of the training pictures held out."""
    pictures = load(name, data)
    groups = groups_of(range(len(pictures.names)), tasks, name)
    return tasks_of(
        pictures,
        groups,
        range_names(name, groups),
        lambda rows, position: hold_out(rows, 0.1, seed, position),
    )


def split_mnist(seed: int, data: Folder = None) -> list[Task]:
    """Return MNIST in five tasks of two digits."""
    return _neighbours("mnist", 5, seed, data)


def mnist2(seed: int, data: Folder = None) -> list[Task]:
    """Return MNIST as digits 0–4, then 5–9 (HAT, whose code validates on the training set; here 10 %)."""
    return _neighbours("mnist", 2, seed, data)


def split_cifar10(seed: int, data: Folder = None) -> list[Task]:
    """Return CIFAR-10 in five tasks of two classes (PMASK)."""
    return _neighbours("cifar10", 5, seed, data)


def cifar(seed: int, data: Folder = None) -> list[Task]:
    """Return HAT's ten tasks: CIFAR-10 in 5 × 2 classes and CIFAR-100 in 5 × 20, order by the seed."""
    made: list[Task] = []
    for name in ("cifar10", "cifar100"):
        pictures = load(name, data)
        groups = groups_of(range(len(pictures.names)), 5, name)
        made += tasks_of(pictures, groups, range_names(name, groups), lambda rows, _: hold_out_as_hat(rows, 0.1, seed))
    return [made[position] for position in shuffled(len(made), seed)]
