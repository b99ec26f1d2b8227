"""What `hatrack export` wrote: a folder a task, with a network in ONNX and a card that says what it takes and gives."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hatrack.errors import Edited, HatrackError
from hatrack.reach import reach, unit

CARD = "card.json"
FLOAT, INT8 = "model.onnx", "model.int8.onnx"
SCHEMA = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Input(_Part):
    """One tensor of a sample, as it was learned: its type, the least and the greatest value."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"]
    low: float
    high: float

    @property
    def floats(self) -> bool:
        """Whether the network takes floats."""
        return self.dtype.startswith("float")

    @property
    def bytes(self) -> bool:
        """Whether it may be given as bytes: it was learned from them, or from figures in their place."""
        return self.dtype == "uint8" or (self.floats and unit(self.low, self.high))

    @property
    def picture(self) -> bool:
        """Whether a picture can be turned into it."""
        return self.bytes and len(self.shape) == 3 and self.shape[0] in (1, 3)

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which values figures are taken; of integers, only a network knows which are too large."""
        if self.floats:
            return reach(self.low, self.high)
        if self.dtype == "bool":
            return 0, 1
        limits = np.iinfo(self.dtype)
        return 0 if self.low >= 0 else int(limits.min), int(limits.max)


class _Output(_Part):
    name: str
    shape: tuple[int, ...]


class _File(_Part):
    bytes: int
    sha256: str


class Card(_Part):
    """What a card says, as far as it is needed to answer."""

    version: int = Field(alias="schema")
    task: str = Field(min_length=1)
    target: dict[str, Any]
    classes: tuple[str | int, ...] | None = None
    inputs: tuple[Input, ...] = Field(min_length=1)
    output: _Output
    files: dict[str, _File]

    @property
    def kind(self) -> str:
        """The name of its target."""
        return str(self.target.get("name"))

    @property
    def axis(self) -> int:
        """Where a sample's answer has its classes: last, unless a map says that they are first."""
        first = self.kind == "dense" and (self.target.get("axis") or self.target.get("units_axis") or 1) == 1
        return 0 if first else -1

    @property
    def names(self) -> list[str | int]:
        """What the classes are called; their numbers where they have no names."""
        return list(self.classes or range(self.output.shape[self.axis]))


@dataclass(frozen=True)
class Exported:
    """A card, all that stands in it, and the network that belongs to it."""

    card: Card
    told: dict[str, Any]
    file: str
    model: bytes


def read_all(folder: Path, int8: bool = False) -> dict[str, Exported]:
    """Read an export of one task, or a folder of such, by the tasks' names."""
    if not folder.is_dir():
        raise HatrackError(f"{folder} is no folder; give one that hatrack export wrote.")
    places = [folder] if (folder / CARD).is_file() else sorted(p.parent for p in folder.glob(f"*/{CARD}"))
    if not places:
        raise HatrackError(f"{folder} holds no exported task (no {CARD} in it, or in a folder of it).")
    found: dict[str, Exported] = {}
    for place in places:
        one = _read(place, INT8 if int8 else FLOAT)
        if one.card.task in found:
            raise HatrackError(f"{place}: there is a task {one.card.task!r} already; names must differ.")
        found[one.card.task] = one
    return found


def _read(place: Path, file: str) -> Exported:
    path = place / CARD
    try:
        told = json.loads(path.read_bytes(), parse_constant=lambda _: None)  # a score may be NaN, which is no JSON
        card = Card.model_validate(told)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"])) or "it"
        raise HatrackError(f"{path} is no card of an export ({where}: {wrong['msg']}).") from None
    except (ValueError, RecursionError) as error:
        raise HatrackError(f"{path} is no JSON ({error}).") from None
    if card.version != SCHEMA:
        raise HatrackError(f"{path} has schema {card.version}; this hatrack reads {SCHEMA}.")
    if card.classes and (not card.output.shape or len(card.classes) != card.output.shape[card.axis]):
        raise HatrackError(f"{path} names {len(card.classes)} classes for answers of shape {card.output.shape}.")
    if file not in card.files:
        how = " --int8" if file == INT8 else ""
        raise HatrackError(f"{place} has no {file}; export the task with --format onnx{how}.")
    return Exported(card, told, file, _whole(place / file, card.files[file]))


def _whole(path: Path, said: _File) -> bytes:
    """Return a file whose bytes are those that the card tells of; what is compared is what will be run."""
    try:
        held = path.read_bytes()
    except OSError as error:
        raise HatrackError(f"{path} cannot be read ({error.strerror}).") from None
    if sha256(held).hexdigest() != said.sha256:
        raise Edited(f"{path} is not the file that {CARD} tells of (its SHA-256 differs); export the task again.")
    return held
