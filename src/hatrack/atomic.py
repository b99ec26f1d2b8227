"""Write a file so that whoever looks sees the old one or the new one, never half of either."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`: temporary name in the same folder, flush to disk, rename."""
    # The process id keeps two writers of one file apart.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


def flush(folder: Path) -> None:
    """Wait until a folder's list of names is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
