"""Encoded pictures → uint8 arrays: one picture, and Parquet files in the Hugging Face image layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hatrack.data.cache import Bytes, Labels, Source
from hatrack.errors import HatrackError
from hatrack.pictures import opened, pixels

CHUNK = 2000
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Frame:
    """The shape (channels, height, width) that every picture is brought to.

    Without `resize` a picture of another size is an error. `pad` zeros are then added on every side.
    """

    shape: Shape
    resize: bool = False
    pad: int = 0

    @property
    def result(self) -> Shape:
        return (self.shape[0], self.shape[1] + 2 * self.pad, self.shape[2] + 2 * self.pad)

    def chunk(self, encoded: Sequence[tuple[str, bytes]]) -> Bytes:
        """Decode (where, bytes) pairs to (n, channels, height, width)."""
        decoded = np.empty((len(encoded), *self.shape), dtype=np.uint8)
        for row, (where, raw) in enumerate(encoded):
            decoded[row] = pixels(where, raw, self.shape, resize=self.resize)
        sides = (self.pad, self.pad)
        return np.pad(decoded, ((0, 0), (0, 0), sides, sides)) if self.pad else decoded


def natural_shape(where: str, raw: bytes) -> Shape:
    """Return (channels, height, width) of one encoded picture: one channel for grey, else three."""
    with opened(where, raw) as picture:
        picture.load()
        return (1 if picture.mode in ("1", "L") else 3, picture.height, picture.width)


@dataclass(frozen=True)
class Table:
    """One Parquet file with a column of pictures and a column of integer labels."""

    path: Path
    image: str
    label: str
    rows: int
    names: tuple[str, ...] | None

    @staticmethod
    def open(path: Path, label: str | None = None) -> Table:
        """Read the schema of a file and find its two columns."""
        pa, pq = _module("pyarrow"), _module("pyarrow.parquet")
        _module("PIL.Image")  # if it is missing, that shows now and not when the first picture is decoded
        try:
            file = pq.ParquetFile(path)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(str(path), error) from error
        with file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        image = _column(path, schema, "picture", ("image", "img"))
        label = _column(path, schema, "label", (label,) if label else ("label", "fine_label"))
        if not pa.types.is_integer(schema.field(label).type):
            raise HatrackError(f"{path}: column {label!r} must hold integers, got {schema.field(label).type}.")
        if rows == 0:
            raise HatrackError(f"{path}: the file holds no row.")
        return Table(path, image, label, rows, _class_names(schema.metadata, label))

    def encoded(self, size: int = CHUNK) -> Iterator[tuple[list[tuple[str, bytes]], Labels]]:
        """Yield chunks of ((where, bytes), …) and labels; a null in either column is an error."""
        pa, pq = _module("pyarrow"), _module("pyarrow.parquet")
        row = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=size, columns=[self.image, self.label]):
                    labels = batch.column(self.label)
                    pairs = []
                    for raw, labelled in zip(
                        _bytes(batch.column(self.image)), labels.is_valid().to_pylist(), strict=True
                    ):
                        where = f"{self.path}, row {row}"
                        if raw is None or not labelled:
                            raise HatrackError(f"{where}: the {'picture' if raw is None else 'label'} is missing.")
                        pairs.append((where, raw))
                        row += 1
                    yield pairs, labels.to_numpy(zero_copy_only=False).astype(np.int64)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(f"{self.path}, after row {row}", error) from error


def from_parquet(
    train: Sequence[Table], test: Sequence[Table], frame: Frame, classes: int, valid: Sequence[Table] = ()
) -> Source:
    """Return the pictures of the given tables: training files first, then those that validate.

    Labels must lie in 0..classes−1, and every class must have a picture in each of the parts.
    """
    trained = sum(table.rows for table in train)
    names = next((table.names for table in train if table.names), None)
    if names is not None and len(names) != classes:
        raise HatrackError(f"{train[0].path}: the file names {len(names)} classes, expected {classes}.")
    names = names or tuple(str(label) for label in range(classes))

    def chunks() -> Iterator[tuple[Bytes, Labels]]:
        for tables in (train, valid, test):
            seen = np.zeros(classes, dtype=bool)
            for table in tables:
                for encoded, y in table.encoded():
                    check_labels([where for where, _ in encoded], y, classes)
                    seen[y] = True
                    yield frame.chunk(encoded), y
            if tables and not seen.all():
                empty = int(seen.argmin())
                raise HatrackError(f"{tables[0].path}: class {empty} ({names[empty]!r}) has no picture.")

    validated, tested = (sum(table.rows for table in tables) for tables in (valid, test))
    info = {"names": list(names), **({"validated": validated} if valid else {})}
    return Source(trained + validated + tested, trained, frame.result, chunks(), info)


def check_labels(where: Sequence[str], y: Labels, classes: int) -> None:
    """Raise for the first label outside 0..classes−1."""
    bad = np.flatnonzero((y < 0) | (y >= classes))
    if len(bad):
        raise HatrackError(f"{where[bad[0]]}: label {y[bad[0]]} is outside 0..{classes - 1}.")


def _column(path: Path, schema: Any, kind: str, wanted: Sequence[str]) -> str:
    found = next((name for name in wanted if name in schema.names), None)
    if found is None:
        raise HatrackError(
            f"{path}: no {kind} column; looked for {' or '.join(map(repr, wanted))}, the file has "
            f"{', '.join(map(repr, schema.names))}."
        )
    return found


def _class_names(metadata: dict[bytes, bytes] | None, label: str) -> tuple[str, ...] | None:
    """Return the class names that `datasets` keeps in the schema's metadata."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


def _bytes(column: Any) -> list[bytes | None]:
    structs = _module("pyarrow").types.is_struct(column.type)
    encoded: list[bytes | None] = (column.field("bytes") if structs else column).to_pylist()
    return encoded


def _unreadable(where: str, error: Exception) -> HatrackError:
    reason = str(error).strip().partition("\n")[0]
    return HatrackError(f"{where}: the Parquet file is broken or truncated ({reason}). Fetch it again.")


def read_bytes(path: Path, where: str | None = None) -> bytes:
    """Return a picture file's content, or raise the error that names `where` it is asked for."""
    try:
        return path.read_bytes()
    except OSError as error:
        place = f"{where}: " if where else ""
        raise HatrackError(f"{place}{path} cannot be read ({error.strerror}).") from error


def _module(name: str) -> Any:
    """Import what only reading pictures needs, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise HatrackError(
            f"reading pictures needs pyarrow and Pillow ({error}); install them: pip install 'hatrack[data]'"
        ) from error
