"""The user's own pictures: a folder of images per class, or Parquet in the Hugging Face image layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hatrack.data.cache import Bytes, Labels, Source, Stored, fingerprint, stored
from hatrack.data.decode import CHUNK, Frame, Shape, Table, from_parquet, natural_shape, read_bytes
from hatrack.data.image_set import Pictures, from_stored
from hatrack.data.inputs import Inputs
from hatrack.data.locate import split_files
from hatrack.data.rows import fixed_test
from hatrack.errors import HatrackError

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
VALIDATIONS = ("validation", "valid", "val")
TEST_SHARE = 0.2


class UnnamedClasses(HatrackError):
    """How many classes there are cannot be seen in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__(f"{file}: the file does not name its classes; give parquet(..., classes=N).")


def folder(path: str | os.PathLike[str], shape: Shape | None = None) -> Pictures:
    """Return the pictures of a folder: path/class/*.png, or path/train/class/*.png and path/test/class/*.png.

    `shape` is (channels, height, width); every picture is scaled to it. Without it all pictures must have the
    size of the first. Classes are numbered in the order of their names. Beside a test part, one called `validation`,
    `valid` or `val` validates; alone it tests. Without either, 20 % of every class tests, the same for every seed.
    Normalisation is measured on the training part.
    """
    _check(shape)
    root = Path(path)
    if not root.is_dir():
        raise HatrackError(f"{root} is not a folder; give one that holds a folder of pictures per class.")
    divided = (root / "train").is_dir()
    home = root / "train" if divided else root
    parts, notes = _parts(lambda part: divided and (root / part).is_dir())
    names = [place.name for place in _subfolders(home)]
    if not names:
        raise HatrackError(f"{home} holds no class; give a folder of pictures per class.")
    train = _listed(home, names)
    valid, test = ([] if part is None else _listed(root / part, names) for part in parts)

    def source() -> Source:
        first = train[0][0]
        # Looked at even where the shape is given: that it cannot be decoded shows before decoding is announced.
        natural = natural_shape(str(first), read_bytes(first))
        frame = Frame(shape or natural, resize=shape is not None)
        every = [*train, *valid, *test]
        info = {"names": names, **({"validated": len(valid)} if valid else {})}
        return Source(len(every), len(train), frame.result, _chunks(every, frame), info)

    files = fingerprint([file for file, _ in (*train, *valid, *test)])
    identity = {"kind": "folder", "files": files, "trained": len(train), "names": names, "shape": shape}
    identity |= {"validated": len(valid)} if valid else {}
    return _pictures(root, stored(f"folder-{root.name}", identity, source), notes)


def parquet(
    path: str | os.PathLike[str],
    shape: Shape | None = None,
    label: str | None = None,
    classes: int | None = None,
) -> Pictures:
    """Return the pictures of a folder with train-*.parquet (and test-*.parquet), as the hub has them.

    `label` names the label column (else `label` or `fine_label`); `classes` is needed where the file does not
    name its classes. `shape`, the parts and normalisation are as for `folder`.
    """
    _check(shape)
    root = Path(path)
    place = next((where for where in (root, root / "data") if split_files(where, "train")), None)
    if place is None:
        raise HatrackError(f"{root}: no train-*.parquet; give the folder that holds the files.")
    train = split_files(place, "train")
    parts, notes = _parts(lambda part: bool(split_files(place, part)))
    valid, test = ([] if part is None else split_files(place, part) for part in parts)

    def source() -> Source:
        trained, validated, tested = ([Table.open(file, label) for file in files] for files in (train, valid, test))
        count = classes or len(trained[0].names or ())
        if not count:
            raise UnnamedClasses(train[0])
        frame = Frame(shape or _first_shape(trained[0]), resize=shape is not None)
        return from_parquet(trained, tested, frame, count, validated)

    files = fingerprint([*train, *valid, *test])
    identity = {
        "kind": "parquet",
        "files": files,
        "trained": len(train),
        "shape": shape,
        "label": label,
        "classes": classes,
        **({"validated": len(valid)} if valid else {}),
    }
    return _pictures(root, stored(f"parquet-{root.name}", identity, source), notes)


def _parts(there: Callable[[str], bool]) -> tuple[tuple[str | None, str | None], list[str]]:
    """Return the parts that validate and test, and notes; what would validate tests where nothing else does."""
    present = [part for part in VALIDATIONS if there(part)]
    valid = present[0] if present else None
    notes = [f"its part {part!r} is not used" for part in present[1:]]
    if there("test"):
        return (valid, "test"), notes
    if valid is None:
        notes = [f"no test part: {TEST_SHARE:.0%} of every class of the training pictures tests"]
    return (None, valid), notes


def _pictures(root: Path, held: Stored, notes: Sequence[str]) -> Pictures:
    # A channel without any contrast would divide by zero.
    inputs = Inputs(tuple(held.record["mean"]), tuple(std or 1.0 for std in held.record["std"]))
    pictures = replace(from_stored(root.name, held, inputs), notes=tuple(notes))
    if len(pictures.test):
        return pictures
    train, test = fixed_test(pictures.y, TEST_SHARE)
    return replace(pictures, train=train, test=test)


def _subfolders(home: Path) -> list[Path]:
    return sorted(place for place in home.iterdir() if place.is_dir() and not place.name.startswith("."))


def _listed(home: Path, names: Sequence[str]) -> list[tuple[Path, int]]:
    """Return (file, label) for every picture, class by class."""
    strange = [place.name for place in _subfolders(home) if place.name not in names]
    if strange:
        raise HatrackError(f"{home / strange[0]}: no class of that name trains; there are {', '.join(names)}.")
    listed = []
    for label, name in enumerate(names):
        place = home / name
        files = sorted(file for file in place.glob("*") if file.suffix.lower() in SUFFIXES)
        if not files:
            raise HatrackError(f"{place}: class {label} ({name!r}) has no picture ({', '.join(sorted(SUFFIXES))}).")
        listed += [(file, label) for file in files]
    return listed


def _chunks(listed: Sequence[tuple[Path, int]], frame: Frame) -> Iterator[tuple[Bytes, Labels]]:
    for start in range(0, len(listed), CHUNK):
        part = listed[start : start + CHUNK]
        x = frame.chunk([(str(file), read_bytes(file)) for file, _ in part])
        yield x, np.array([label for _, label in part], dtype=np.int64)


def _check(shape: Shape | None) -> None:
    if shape is not None and not (
        len(shape) == 3 and shape[0] in (1, 3) and all(isinstance(size, int) and size > 0 for size in shape)
    ):
        raise HatrackError(f"shape must be (channels, height, width) with 1 or 3 channels, got {shape!r}.")


def _first_shape(table: Table) -> Shape:
    encoded, _ = next(table.encoded(1))
    return natural_shape(*encoded[0])
