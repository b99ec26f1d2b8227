"""Where an export lies: a folder a task, which appears under its name whole, in place of an older export of it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

from hatrack import atomic
from hatrack.errors import HatrackError

CARD = "card.json"
LONGEST = 100  # characters of a folder's name


def slugs(names: Sequence[str]) -> list[str]:
    """Return folder names for tasks: letters, digits, . _ - as they are, all else becomes -; each its own."""
    taken: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:LONGEST]
        plain = re.sub(r"^\.+", lambda dots: "-" * len(dots[0]), plain)  # neither hidden nor the folder above
        others = {slug.casefold() for slug in taken}
        taken.append(
            next(
                slug
                for slug in chain([plain], (f"{plain}-{number}" for number in count(2)))
                if slug.casefold() not in others
            )
        )
    return taken


@contextmanager
def replacing(path: Path, task: str) -> Iterator[Path]:
    """Give a folder to be filled, which then stands at `path`; what goes wrong leaves everything as it was."""
    _refuse_others(path, task)
    above = [folder for folder in path.parents if not folder.exists()]
    try:
        with atomic.naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _filled(path) as draft:
                yield draft
    except BaseException:
        for folder in above:
            with suppress(OSError):  # something is in it
                folder.rmdir()
        raise


@contextmanager
def _filled(path: Path) -> Iterator[Path]:
    with atomic.draft(path, folder=True) as (draft, _):
        yield draft
        older = atomic.name_beside(path) if path.exists() else None
        if older is not None:
            os.rename(path, older)
        try:
            os.rename(draft, path)
        except OSError:
            if older is not None:
                os.rename(older, path)
            raise
        if older is not None:
            shutil.rmtree(older, ignore_errors=True)
    atomic.flush(path.parent)


def _refuse_others(path: Path, task: str) -> None:
    """Refuse to replace anything but an export of the same task, or an empty folder."""
    if not path.is_symlink() and (not path.exists() or (path.is_dir() and not any(path.iterdir()))):
        return
    try:
        whose = None if path.is_symlink() else json.loads((path / CARD).read_text()).get("task")
    except (OSError, ValueError, AttributeError):
        whose = None
    if whose != task:
        what = "something else" if whose is None else f"an export of task {whose!r}"
        raise HatrackError(f"{str(path)!r} holds {what}; choose another folder, or remove it.")
