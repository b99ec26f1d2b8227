"""The user's own folders of pictures as tasks, one a folder: what `hatrack run --task NAME=DIR` learns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

from hatrack.data.decode import Shape
from hatrack.data.split import one_task
from hatrack.data.task import Task
from hatrack.data.user import folder
from hatrack.errors import HatrackError

VALID = 0.15


def folders(seed: int, folders: dict[str, str | os.PathLike[str]], shape: Sequence[int] = (3, 32, 32)) -> list[Task]:
    """Return a task a folder, in the order given; pictures are brought to `shape` (channels, height, width).

    A folder holds one of pictures a class, or `train` and `test` with these, as in hatrack.data.folder.
    """
    made = []
    for name, place in folders.items():
        try:
            made.append(one_task(folder(place, cast("Shape", tuple(shape))), name, seed=seed, valid=VALID))
        except HatrackError as error:
            raise HatrackError(f"task {name!r}: {error}") from None
    return made
