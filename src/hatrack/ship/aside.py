"""What a learner saves, in a folder that is there for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hatrack.learn.core import Core


@contextmanager
def saved_aside(core: Core) -> Iterator[Path]:
    """Give a folder with what `learner.save` writes; afterwards the learner knows of it no more."""
    with TemporaryDirectory() as name:
        core.save(name)
        for place in [place for place in core.stored if place[0] == Path(name)]:
            del core.stored[place]
        yield Path(name)
