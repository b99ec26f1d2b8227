"""How a network came to be as wide as it is: one record a widening; and growing by itself before a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hatrack.measure.shares import Share

if TYPE_CHECKING:
    from hatrack.learn.core import Core


@dataclass(frozen=True)
class Growth:
    """A widening: how many tasks were finished, and how many units each part of the network got (masks/widths.py).

    `sites`: the units of each site before and after; `parameters`: those of the network; `taken`: the share of its
    weights that was taken afterwards, None where nothing is.
    """

    tasks: int
    units: list[int]
    sites: dict[str, list[int]]
    parameters: list[int]
    taken: Share | None


@contextmanager
def room_made(core: Core) -> Iterator[None]:
    """Let the method widen what is short of room, before a task begins; undo it where the task never was."""
    index = core.finished
    undo = None if len(core.tasks) > index else core._make_room()
    try:
        yield
    except BaseException:
        if undo is not None and len(core.tasks) == core.finished == index:
            with core.model.turn:
                undo()
        raise
