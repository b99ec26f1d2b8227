"""Write a file so that whoever looks sees the old one or the new one, never half of either.

What is not whole yet, a file or a folder, is a draft: it has a hidden name beside the final one. Its maker holds a lock
on it; so a draft without one was left by a killed process, and is removed by who makes the next.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex

DRAFT = re.compile(r"\..+\.[0-9a-f-]+\.tmp")

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when a disk, or one user's part of it, is full."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what goes wrong with it: of one that it writes the system says nothing, or names the draft."""
    try:
        yield
    except OSError as error:
        named = None if error.filename is None else Path(os.fsdecode(error.filename))
        if error.errno is None:
            raise
        places = (None, path.parent) if error.strerror == os.strerror(error.errno) else (None,)
        if named is not None and named not in places and not DRAFT.fullmatch(named.name):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def write(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`: temporary name in the same folder, flush to disk, rename."""
    with naming(path), draft(path) as (temporary, handle):
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    flush(path.parent)


@contextmanager
def draft(path: Path, folder: bool = False) -> Iterator[tuple[Path, int]]:
    """Make a draft of `path`; give its place and its handle. Unless it was renamed it is gone afterwards."""
    temporary = name_beside(path)
    with _others_kept_out(path):
        if folder:
            temporary.mkdir()
        handle = os.open(temporary, os.O_RDONLY if folder else os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield temporary, handle
    finally:
        os.close(handle)
        _remove(temporary)
        clear(path)  # of one that died meanwhile


def clear(path: Path) -> None:
    """Remove the drafts of `path` that killed processes left."""
    with _others_kept_out(path):
        pass


def name_beside(path: Path) -> Path:
    """Return a name that nobody has: what lies there unlocked will be taken for a left draft of `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}-{token_hex(4)}.tmp")


@contextmanager
def _others_kept_out(path: Path) -> Iterator[None]:
    """Let nobody else look for left drafts between a draft's making and its lock; remove what is left of `path`."""
    if DRAFT.fullmatch(path.parent.name):  # nobody else is in there, and its maker would wait for its own lock
        yield
        return
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system that locks no folders: there, what was left stays
            fcntl.flock(parent, fcntl.LOCK_EX)
            for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
                with suppress(OSError):
                    _remove_unless_held(left)
        yield
    finally:
        os.close(parent)


def _remove_unless_held(left: Path) -> None:
    handle = os.open(left, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(left)
    finally:
        os.close(handle)


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def flush(folder: Path) -> None:
    """Wait until a folder's list of names is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(handle)
    finally:
        os.close(handle)
