"""Sequences that divide one set, or two, by class: in label order, or dealt out by the seed (SPG)."""

from __future__ import annotations

import numpy as np

from hatrack.data.image_set import EMBEDDED, load
from hatrack.data.inputs import Inputs
from hatrack.data.locate import Folder
from hatrack.data.rows import Parts, Rows, groups_of, hold_out, hold_out_as_hat, rows_of_each, shuffled
from hatrack.data.sets import IMAGENET_MEAN, IMAGENET_STD
from hatrack.data.split import Quota, class_tasks, make_task, range_names, renumbered, tasks_of
from hatrack.data.task import Task

# SPG normalises every colour set by ImageNet's figures.
IMAGENET_INPUTS = Inputs(IMAGENET_MEAN, IMAGENET_STD)


def split_digits(seed: int) -> list[Task]:
    """Return the embedded 8×8 digits in five tasks of two classes."""
    groups = groups_of(range(10), 5, EMBEDDED)

    def cut(rows: Rows, position: int) -> Parts:
        return hold_out(rows, share=0.15, seed=seed, salt=groups[position][0])

    return tasks_of(load(EMBEDDED), groups, range_names(EMBEDDED, groups), cut)


def split_mnist(seed: int, data: Folder = None) -> list[Task]:
    """Return MNIST in five tasks of two digits, 10 % of the training pictures held out."""
    return class_tasks(load("mnist", data), 5, seed, valid=0.1)


def mnist2(seed: int, data: Folder = None) -> list[Task]:
    """Return MNIST as digits 0–4, then 5–9 (HAT, whose code validates on the training set; here 10 %)."""
    return class_tasks(load("mnist", data), 2, seed, valid=0.1)


def split_cifar10(seed: int, data: Folder = None) -> list[Task]:
    """Return CIFAR-10 in five tasks of two classes, 10 % of the training pictures held out (PMASK)."""
    return class_tasks(load("cifar10", data), 5, seed, valid=0.1)


def cifar(seed: int, data: Folder = None) -> list[Task]:
    """Return HAT's ten tasks: CIFAR-10 in 5 × 2 classes and CIFAR-100 in 5 × 20, order by the seed."""
    made: list[Task] = []
    for name in ("cifar10", "cifar100"):
        pictures = load(name, data)
        groups = groups_of(range(len(pictures.names)), 5, name)
        made += tasks_of(pictures, groups, range_names(name, groups), lambda rows, _: hold_out_as_hat(rows, 0.1, seed))
    return [made[position] for position in shuffled(len(made), seed)]


def split_cifar100(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return CIFAR-100 in 5, 10 or 20 tasks: 450/50/100 pictures a class."""
    return _dealt("cifar100", tasks, Quota(450, 50, 100), seed, data)


def tiny_imagenet(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return Tiny ImageNet at 32×32 in 10 or 20 tasks: 450/50/50 pictures a class."""
    return _dealt("tiny_imagenet32", tasks, Quota(450, 50, 50), seed, data)


def imagenet32(seed: int, data: Folder = None, tasks: int = 100) -> list[Task]:
    """Return ImageNet at 32×32 in 50, 100 or 200 tasks: 1000/100/50 pictures a class."""
    return _dealt("imagenet32", tasks, Quota(1000, 100, 50), seed, data)


def _dealt(name: str, tasks: int, quota: Quota, seed: int, data: Folder) -> list[Task]:
    """Return a set in tasks of classes that the seed deals out, a fixed number of samples a class."""
    pictures = load(name, data)
    order = np.random.default_rng(seed).permutation(len(pictures.names)).tolist()
    groups = groups_of(order, tasks, name)
    labels = renumbered(pictures, groups)
    train, test = (rows_of_each(pictures.y, rows, len(order)) for rows in (pictures.train, pictures.test))
    made = []
    for position, classes in enumerate(groups, start=1):
        parts, tested, notes = quota.cut(train, test, classes, seed)
        title = f"{name} {position}/{tasks}"
        task = make_task(
            title, pictures, parts, tested, labels=labels, classes=classes, inputs=IMAGENET_INPUTS, notes=notes
        )
        made.append(task)
    return made
