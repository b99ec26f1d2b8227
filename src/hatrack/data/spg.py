"""SPG's sequences of dissimilar tasks: classes dealt out by the seed, a fixed number of samples a class."""

from __future__ import annotations

import os

import numpy as np

from hatrack.data.pictures import load
from hatrack.data.rows import groups_of, rows_of_each
from hatrack.data.sets import IMAGENET_MEAN, IMAGENET_STD
from hatrack.data.split import Quota, make_task, renumbered
from hatrack.data.task import Inputs, Task

Folder = str | os.PathLike[str] | None
# SPG normalises every colour set by ImageNet's figures.
IMAGENET_INPUTS = Inputs(IMAGENET_MEAN, IMAGENET_STD)


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
    pictures = load(name, data)
    order = np.random.default_rng(seed).permutation(len(pictures.names)).tolist()
    groups = groups_of(order, tasks, name)
    labels = renumbered(pictures, groups)
    train, test = (rows_of_each(pictures.y, rows, len(order)) for rows in (pictures.train, pictures.test))
    made = []
    for position, classes in enumerate(groups, start=1):
        parts, tested, notes = quota.cut(train, test, classes, seed)
        title = f"{name} {position}/{tasks}"
        made.append(
            make_task(
                title,
                pictures,
                parts,
                tested,
                labels=labels,
                classes=classes,
                inputs=IMAGENET_INPUTS,
                notes=notes,
            )
        )
    return made
