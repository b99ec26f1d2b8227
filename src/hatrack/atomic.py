"""Write a file so that whoever looks sees the old one or the new one, never half of either."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system says when a disk, or one user's part of it, is full."""


@contextmanager
def naming(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Name the file in what goes wrong with it: the system does so when it opens one, not when it writes.

    `draft`: the name that it has until it is whole, which is of no use to anybody.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(draft)):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def write(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`: temporary name in the same folder, flush to disk, rename."""
    # The process id keeps two writers of one file apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path, temporary):
            with temporary.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(str(temporary), path)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what counts
            temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


def flush(folder: Path) -> None:
    """Wait until a folder's list of names is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(handle)
    finally:
        os.close(handle)
