"""Small image sets in the real file formats, made on the spot: every picture says which row and class it is."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from hatrack.data.sets import SETS


def pixels(row: int, label: int, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    """A picture (channels, height, width) whose corner holds its row and label; other pixels follow from them."""
    channels, height, width = shape
    grid = np.arange(channels * height * width).reshape(shape)
    picture = ((grid * 7 + row * 13 + label * 29) % 251).astype(np.uint8)
    picture[0, 0, :3] = row % 256, row // 256, label % 256
    return picture


def png(picture: npt.NDArray[np.uint8], form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    moved = picture.transpose(1, 2, 0)
    Image.fromarray(moved[:, :, 0] if moved.shape[2] == 1 else moved).save(buffer, form, **options)
    return buffer.getvalue()


def write_parquet(
    file: Path,
    labels: Sequence[int | None],
    shape: tuple[int, int, int],
    *,
    names: Sequence[str] | None = None,
    image: str = "image",
    label: str = "label",
    start: int = 0,
    broken: dict[int, bytes | None] | None = None,
) -> None:
    """Write a file in the Hugging Face image layout; `broken` replaces the picture of some rows."""
    raws = [png(pixels(start + i, y or 0, shape)) for i, y in enumerate(labels)]
    for row, raw in (broken or {}).items():
        raws[row] = raw  # type: ignore[call-overload]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table(
        {
            image: pa.array([{"bytes": raw, "path": None} for raw in raws], kind),
            label: pa.array(list(labels), pa.int64()),
        }
    )
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"_type": "ClassLabel", "names": list(names)}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file)


def write_set(data: Path, name: str, train: int = 4, test: int = 2) -> Path:
    """Write a named set with `train` and `test` pictures a class, classes interleaved; return its folder."""
    spec = SETS[name]
    for part, count in (("train", train), ("test", test)):
        labels = list(range(spec.classes)) * count
        file = data / name / f"{part}-00000-of-00001.parquet"
        write_parquet(file, labels, spec.shape, names=[f"{name} {label}" for label in range(spec.classes)])
    return data / name


def entries(cache: Path) -> list[str]:
    """Everything that lies in the cache of decoded pictures, hidden leftovers included."""
    decoded = cache / "decoded"
    return sorted(place.name for place in decoded.iterdir()) if decoded.exists() else []
