"""Pictures decoded once: memory-mapped arrays in the user's cache, with a record that says what they hold."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from hatrack import atomic
from hatrack.data.locate import cache_root
from hatrack.errors import HatrackError

Bytes = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

log = logging.getLogger(__name__)

# Part of every key: raise it when decoding changes, so that older caches are not taken for new ones.
DECODER = 1

_MAPPED: WeakValueDictionary[tuple[str, int], Bytes] = WeakValueDictionary()


@dataclass
class Source:
    """Pictures on their way into the cache: how many, and chunks of (pictures, labels), training rows first.

    A chunk iterator that finds fault raises a HatrackError; then nothing is cached. `info` joins the record.
    """

    rows: int
    trained: int
    shape: tuple[int, int, int]
    chunks: Iterator[tuple[Bytes, Labels]]
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """Decoded pictures (n, channels, height, width) and labels, mapped from disk, and their record."""

    x: Bytes
    y: Labels
    record: Mapping[str, Any]


def fingerprint(files: Sequence[Path]) -> list[list[Any]]:
    """Return what tells one state of the source files from another: name, size, time of change."""
    stats = [(file, file.stat()) for file in files]
    return [[file.name, stat.st_size, stat.st_mtime_ns] for file, stat in stats]


def stored(name: str, identity: Mapping[str, Any], source: Callable[[], Source], verify: bool = False) -> Stored:
    """Return the decoded set, building it when it is absent or damaged.

    `identity` is everything that the pixels depend on; it names the cache folder, so that a changed source is
    another entry. Every start compares sizes and times; checksums are computed when a time differs, or on
    `verify`.
    """
    key = hashlib.sha256(json.dumps([DECODER, identity], sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_root() / "decoded" / f"{name}-{key}"
    if not _sound(folder, verify):
        _build(name, folder, source)
    return Stored(_mapped(folder / "x.npy"), np.load(folder / "y.npy"), _record(folder))


def _mapped(path: Path) -> Bytes:
    """Map an array, once for all who use it at the same time."""
    key = (str(path), path.stat().st_mtime_ns)
    known = _MAPPED.get(key)
    if known is None:
        known = _MAPPED[key] = np.load(path, mmap_mode="r").view(np.ndarray)
    return known


def _build(name: str, folder: Path, source: Callable[[], Source]) -> None:
    """Write a complete entry beside `folder`, then move it there in one step.

    Two processes may build at once: the first to move wins, the other throws its copy away.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic.draft(folder, folder=True) as (building, _):
            begun = source()
            # Said when there is a place to write to and the source is open: not where nothing comes of it.
            log.info("decoding %s; later starts use the arrays in %s", name, folder)
            _write(building, begun)
            _publish(building, folder)
    except OSError as error:
        raise HatrackError(
            f"decoded pictures cannot be written to {folder.parent} ({error.strerror}); set HATRACK_CACHE to "
            f"a folder that can be written and has room."
        ) from error


def _publish(building: Path, folder: Path) -> None:
    if folder.exists() and not _sound(folder, verify=True):
        # Renamed away before it is removed, so that nobody meets half of it; maps of it stay valid.
        damaged = atomic.name_beside(folder)
        with suppress(FileNotFoundError):  # another process may have repaired it first
            os.rename(folder, damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        os.rename(building, folder)
    except OSError:
        if not _sound(folder, verify=False):
            raise


def _write(folder: Path, source: Source) -> None:
    labels: list[Labels] = []
    counts = np.zeros((source.shape[0], 256), dtype=np.int64)
    done = 0
    # Plain writes, not a writable map: on a full disk a map kills the process, a write raises.
    with _Hashed(folder / "x.npy") as pixels:
        header = {"descr": "|u1", "fortran_order": False, "shape": (source.rows, *source.shape)}
        np.lib.format.write_array_header_1_0(pixels, header)
        for x, y in source.chunks:
            pixels.write(np.ascontiguousarray(x).data)
            labels.append(y)
            training = x[: max(0, source.trained - done)]
            counts += [np.bincount(training[:, channel].ravel(), minlength=256) for channel in range(x.shape[1])]
            done += len(y)
    with _Hashed(folder / "y.npy") as numbers:
        np.lib.format.write_array(numbers, np.concatenate(labels))
    mean, std = _moments(counts)
    record = {
        "rows": source.rows,
        "trained": source.trained,
        "mean": mean,
        "std": std,
        "files": {file.path.name: [*_state(file.path), file.sha256] for file in (pixels, numbers)},
        **source.info,
    }
    with _Hashed(folder / "record.json") as page:
        page.write(json.dumps(record, indent=1).encode())
    if done != source.rows or not _sound(folder, verify=True):
        raise OSError(errno.EIO, f"{done} pictures of {source.rows} written, or not read back as written")


class _Hashed:
    """A file that is written once, hashed on the way, and on the disk when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest = hashlib.sha256()

    def __enter__(self) -> _Hashed:
        self._file = open(self.path, "wb")
        return self

    def write(self, content: Any) -> None:
        self._file.write(content)
        self._digest.update(content)

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def _sound(folder: Path, verify: bool) -> bool:
    """Tell whether an entry is whole: files of the recorded size and time, else of the recorded content."""
    try:
        for name, (size, time, sha256) in _record(folder)["files"].items():
            found_size, found_time = _state(folder / name)
            if found_size != size or ((verify or found_time != time) and _sha256(folder / name) != sha256):
                return False
    except (OSError, ValueError, KeyError):
        return False
    return True


def _sha256(path: Path) -> str:
    # Read, not mapped: pages of a map would count as this process's memory.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return record


def _state(file: Path) -> list[int]:
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns]


def _moments(counts: npt.NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation per channel, of pixels in [0, 1], from counts of each byte value."""
    value = np.arange(256) / 255
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ value
    variance = share @ value**2 - mean**2
    return [round(float(m), 4) for m in mean], [round(float(np.sqrt(v)), 4) for v in variance]
