"""LEAF's own files: users with their samples, as its `preprocess.sh -t sample` writes them in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hatrack.data.cache import Bytes, Labels, Source
from hatrack.data.decode import CHUNK, Frame, Shape, check_labels, read_bytes
from hatrack.errors import HatrackError

IMAGES = "img_align_celeba"


@dataclass(frozen=True)
class Layout:
    """A LEAF set: its folder's name, shape, names of the classes, and whether x holds file names or pixels."""

    name: str
    shape: Shape
    classes: tuple[str, ...]
    as_files: bool


@dataclass(frozen=True)
class _User:
    """One user's samples of one part: file names, or lists of pixels in [0, 1]."""

    name: str
    file: Path
    x: Sequence[Any]
    y: Labels

    def where(self, row: int) -> str:
        return f"{self.file}, user {self.name!r}, sample {row}"


def json_files(layout: Layout, folder: Path, part: str) -> list[Path]:
    """Return the JSON files of one part (`train`, `test`), or raise with the way to get them."""
    files = sorted(folder.glob(f"{part}/*.json")) or sorted(folder.glob(f"data/{part}/*.json"))
    if not files:
        pictures = f", with the pictures in {folder / 'raw' / IMAGES}" if layout.as_files else ""
        raise HatrackError(
            f"{layout.name}: no {part}/*.json in {folder}. Get it with: git clone "
            f"https://github.com/TalwalkarLab/leaf && cd leaf/data/{layout.name} && ./preprocess.sh -s iid "
            f"--sf 1.0 -k 5 -t sample && cp -r data {folder}{pictures}"
        )
    return files


def from_leaf(layout: Layout, folder: Path, train: Sequence[Path], test: Sequence[Path], count: int) -> Source:
    """Return the samples of the first `count` users; `info["users"]` says which rows are whose."""
    owners = _users(layout, train, count)
    names = [user.name for user in owners]
    tested = sorted(_users(layout, test, count, names), key=lambda user: names.index(user.name))
    spans: list[dict[str, Any]] = [{"name": name} for name in names]
    start = 0
    for part, users in (("train", owners), ("test", tested)):
        for span, user in zip(spans, users, strict=True):
            span[part] = [start, start + len(user.y)]
            start += len(user.y)
    images = _image_folder(folder) if layout.as_files else None

    def chunks() -> Iterator[tuple[Bytes, Labels]]:
        for user in (*owners, *tested):
            for first in range(0, len(user.y), CHUNK):
                rows = range(first, min(first + CHUNK, len(user.y)))
                x = _vectors(layout, user, rows) if images is None else _files(layout, user, rows, images)
                yield x, user.y[rows.start : rows.stop]

    return Source(start, sum(len(user.y) for user in owners), layout.shape, chunks(), {"users": spans})


def _users(layout: Layout, files: Sequence[Path], count: int, wanted: Sequence[str] | None = None) -> list[_User]:
    """Read files until `count` users (of those wanted) are found: whole sets are far larger than that."""
    found: dict[str, _User] = {}
    for file in files:
        for name, samples in _read(file).items():
            new = name not in found and (wanted is None or name in wanted)
            if new and len(samples["x"]) and len(found) < count:
                found[name] = _User(name, file, samples["x"], _labels(layout, file, name, samples["y"]))
        if len(found) == count:
            return list(found.values())
    absent = "" if wanted is None else f"; {next(name for name in wanted if name not in found)!r} is missing"
    raise HatrackError(
        f"{layout.name}: {files[0].parent} holds samples of {len(found)} users, {count} are needed{absent}."
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
        users = {name: content["user_data"][name] for name in content["users"]}
        if any(len(samples["x"]) != len(samples["y"]) for samples in users.values()):
            raise ValueError("a user has not as many labels as samples")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HatrackError(
            f"{file}: not a LEAF file, which has users, and user_data with x and y for each "
            f"({type(error).__name__}: {error})."
        ) from error
    return users


def _labels(layout: Layout, file: Path, user: str, given: Sequence[Any]) -> Labels:
    where = [f"{file}, user {user!r}, sample {row}" for row in range(len(given))]
    for place, label in zip(where, given, strict=True):
        if not isinstance(label, int | float) or label != int(label):
            raise HatrackError(f"{place}: label {label!r} is not a whole number.")
    y = np.array(given, dtype=np.int64)
    check_labels(where, y, len(layout.classes))
    return y


def _files(layout: Layout, user: _User, rows: range, images: Path) -> Bytes:
    encoded = [(user.where(row), read_bytes(images / str(user.x[row]), user.where(row))) for row in rows]
    return Frame(layout.shape, resize=True).chunk(encoded)


def _vectors(layout: Layout, user: _User, rows: range) -> Bytes:
    out = np.empty((len(rows), *layout.shape), dtype=np.uint8)
    for position, row in enumerate(rows):
        try:
            values = np.array(user.x[row], dtype=np.float64).reshape(layout.shape)
        except (ValueError, TypeError) as error:
            raise HatrackError(f"{user.where(row)}: expected {np.prod(layout.shape)} numbers ({error}).") from error
        if not (values.min() >= 0 and values.max() <= 1):
            raise HatrackError(f"{user.where(row)}: pixels must lie in 0..1, as LEAF writes them.")
        out[position] = np.round(values * 255)
    return out


def _image_folder(folder: Path) -> Path:
    places = [folder / IMAGES, folder / "raw" / IMAGES, folder / "data" / "raw" / IMAGES]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise HatrackError(f"{folder}: no folder {IMAGES}; looked for {', '.join(map(str, places))}.")
    return found
