"""SPG's sequences of similar tasks, F-CelebA and F-EMNIST: one user of LEAF's files a task."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np

from hatrack.data.cache import fingerprint, stored
from hatrack.data.image_set import Pictures, from_stored
from hatrack.data.inputs import Inputs
from hatrack.data.leaf import Layout, from_leaf, json_files
from hatrack.data.locate import Folder, cache_root, mirror
from hatrack.data.rows import Rows, hold_out, rows_of_each, shuffled
from hatrack.data.sets import IMAGENET_MEAN, IMAGENET_STD, SETS
from hatrack.data.split import Quota, make_task, renumbered
from hatrack.data.task import Task
from hatrack.errors import HatrackError

_CELEBA = Layout("celeba", (3, 32, 32), ("not smiling", "smiling"), as_files=True)
_FEMNIST = Layout("femnist", (1, 28, 28), tuple(digits + ascii_uppercase + ascii_lowercase), as_files=False)


def fceleba(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return F-CelebA: smiling or not, one user a task, pictures scaled to 32×32."""
    return _tasks(_CELEBA, Inputs(IMAGENET_MEAN, IMAGENET_STD), Quota(200, 20, 40), tasks, seed, data)


def femnist(seed: int, data: Folder = None, tasks: int = 10) -> list[Task]:
    """Return F-EMNIST: 62 characters, one writer a task, 28×28 grey."""
    inputs = Inputs(SETS["mnist"].mean, SETS["mnist"].std)
    return _tasks(_FEMNIST, inputs, Quota(50, 5, 10), tasks, seed, data)


def _tasks(layout: Layout, inputs: Inputs, quota: Quota, tasks: int, seed: int, data: Folder) -> list[Task]:
    """Return the first `tasks` users of the files, in an order shuffled by the seed."""
    if tasks < 1:
        raise HatrackError(f"tasks must be 1 or more, got {tasks}.")
    home = mirror(data)
    folder = (home if home is not None else cache_root() / "data") / layout.name
    train, test = (json_files(layout, folder, part) for part in ("train", "test"))
    identity = {"files": fingerprint([*train, *test]), "shape": layout.shape, "users": tasks}
    held = stored(f"{layout.name}-{tasks}users", identity, lambda: from_leaf(layout, folder, train, test, tasks))
    pictures = from_stored(layout.name, held, inputs, layout.classes)
    classes = range(len(layout.classes))
    labels = renumbered(pictures, [classes])
    room = quota.train + quota.valid
    made = []
    for position in shuffled(tasks, seed).tolist():
        user = held.record["users"][position]
        # Of the whole user, not of a class: a writer's class may be one sample.
        parts = hold_out(_capped(pictures, np.arange(*user["train"]), room), quota.valid / room, seed, position)
        test_rows = _capped(pictures, np.arange(*user["test"]), quota.test)
        name = f"{layout.name} {user['name']}"
        made.append(make_task(name, pictures, parts, test_rows, labels=labels, classes=classes))
    return made


def _capped(pictures: Pictures, rows: Rows, most: int) -> Rows:
    """Return at most `most` of `rows` a class."""
    each = rows_of_each(pictures.y, rows, len(pictures.names))
    return np.sort(np.concatenate([found[:most] for found in each]))
