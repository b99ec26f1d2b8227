"""Sequences in which every task is one set under another fixed permutation of its pixels."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from hatrack.data.image_set import EMBEDDED, Pictures, load
from hatrack.data.locate import Folder
from hatrack.data.rows import hold_out
from hatrack.data.split import make_task, renumbered
from hatrack.data.task import Task
from hatrack.errors import HatrackError


def permuted_digits(seed: int, tasks: int = 10) -> list[Task]:
    """Return the embedded digits under `tasks` permutations."""
    return _permuted(load(EMBEDDED), tasks, seed, valid=0.15)


def permuted_mnist(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return MNIST under `tasks` permutations (HAT, whose code validates on the training set; here 10 %)."""
    return _permuted(load("mnist", data), tasks, seed, valid=0.1)


def _permuted(pictures: Pictures, tasks: int, seed: int, valid: float) -> list[Task]:
    if tasks < 1:
        raise HatrackError(f"tasks must be 1 or more, got {tasks}.")
    classes = range(len(pictures.names))
    labels = renumbered(pictures, [classes])
    # All tasks hold out the same pictures, so that none validates on what another has trained on.
    parts = hold_out(pictures.train, valid, seed)
    made = []
    for position in range(tasks):
        order = np.random.default_rng([seed, position]).permutation(prod(pictures.shape))
        inputs = replace(pictures.inputs, permutation=tuple(order.tolist()))
        name = f"{pictures.name} permutation {position + 1}"
        made.append(make_task(name, pictures, parts, pictures.test, labels=labels, classes=classes, inputs=inputs))
    return made
