"""SPG's sequences of similar tasks, F-CelebA and F-EMNIST: one user of LEAF's files a task."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from hatrack.data.cache import fingerprint, stored
from hatrack.data.leaf import Layout, from_leaf, json_files
from hatrack.data.locate import cache_root, mirror
from hatrack.data.pictures import Pictures
from hatrack.data.rows import Parts, Rows, hold_out, rows_of_each, shuffled
from hatrack.data.sets import IMAGENET_MEAN, IMAGENET_STD, SETS
from hatrack.data.split import Quota, make_task, renumbered
from hatrack.data.task import Inputs, Task
from hatrack.errors import HatrackError

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class _Federated:
    layout: Layout
    names: tuple[str, ...]
    inputs: Inputs
    quota: Quota


_CELEBA = _Federated(
    Layout("celeba", (3, 32, 32), 2, as_files=True),
    ("not smiling", "smiling"),
    Inputs(IMAGENET_MEAN, IMAGENET_STD),
    Quota(200, 20, 40),
)
_FEMNIST = _Federated(
    Layout("femnist", (1, 28, 28), 62, as_files=False),
    tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
    Inputs(SETS["mnist"].mean, SETS["mnist"].std),
    Quota(50, 5, 10),
)


def fceleba(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return F-CelebA: smiling or not, one user a task, pictures scaled to 32×32."""
    return _tasks(_CELEBA, tasks, seed, data)


def femnist(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return F-EMNIST: 62 characters, one writer a task, 28×28 grey."""
    return _tasks(_FEMNIST, tasks, seed, data)


def _tasks(spec: _Federated, tasks: int, seed: int, data: Folder) -> list[Task]:
    """Return the first `tasks` users of the files, in an order shuffled by the seed."""
    if tasks < 1:
        raise HatrackError(f"tasks must be 1 or more, got {tasks}.")
    layout = spec.layout
    home = mirror(data)
    folder = (home if home is not None else cache_root() / "data") / layout.name
    train, test = (json_files(layout, folder, part) for part in ("train", "test"))
    identity = {"files": fingerprint([*train, *test]), "shape": layout.shape, "users": tasks}
    held = stored(f"{layout.name}-{tasks}users", identity, lambda: from_leaf(layout, folder, train, test, tasks))
    trained, rows = np.split(np.arange(held.record["rows"]), [held.record["trained"]])
    pictures = Pictures(layout.name, held.x, held.y, trained, rows, spec.names, spec.inputs)
    classes = range(layout.classes)
    labels = renumbered(pictures, [classes])
    made = []
    for position in shuffled(tasks, seed).tolist():
        user = held.record["users"][position]
        parts = _parts(spec.quota, pictures, np.arange(*user["train"]), seed, position)
        test_rows = _capped(pictures, np.arange(*user["test"]), spec.quota.test)
        name = f"{layout.name} {user['name']}"
        made.append(make_task(name, pictures, parts, test_rows, labels=labels, classes=classes))
    return made


def _parts(quota: Quota, pictures: Pictures, rows: Rows, seed: int, position: int) -> Parts:
    """Hold out the quota's share over the whole user, not a class: a writer's class may be one sample."""
    room = quota.train + quota.valid
    return hold_out(_capped(pictures, rows, room), quota.valid / room, seed, position)


def _capped(pictures: Pictures, rows: Rows, most: int) -> Rows:
    """Return at most `most` of `rows` a class."""
    each = rows_of_each(pictures.y, rows, len(pictures.names))
    return np.sort(np.concatenate([found[:most] for found in each]))
