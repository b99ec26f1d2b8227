"""A decoded image set in memory-mapped arrays, and `load`, which gives a named one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from hatrack.data.cache import Bytes, Labels, Source, Stored, fingerprint, stored
from hatrack.data.decode import Frame, Table, from_parquet
from hatrack.data.inputs import Inputs
from hatrack.data.locate import Folder, find
from hatrack.data.rows import Rows, fixed_test
from hatrack.data.sets import SETS
from hatrack.errors import HatrackError, unknown

EMBEDDED = "digits"
DIGIT_INPUTS = Inputs(mean=(0.3053,), std=(0.3760,))


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures (n, channels, height, width) as uint8 with their labels, and which rows train, validate or test.

    Without `valid`, tasks hold a share of the training rows out.
    """

    name: str
    x: Bytes = field(repr=False)
    y: Labels = field(repr=False)
    train: Rows = field(repr=False)
    test: Rows = field(repr=False)
    names: tuple[str, ...]
    inputs: Inputs
    notes: tuple[str, ...] = ()
    valid: Rows | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    def rgb(self) -> Pictures:
        """Return the pictures with three channels; a grey one is repeated as a view, at no cost in memory."""
        if self.shape[0] == 3:
            return self
        return replace(self, x=np.broadcast_to(self.x, (len(self.x), 3, *self.shape[1:])))


def load(name: str, data: Folder = None, *, side: int | None = None, verify: bool = False) -> Pictures:
    """Return a named set, decoded now or earlier; `data` is the folder that holds the sets.

    With `side`, pictures are zero-padded to side × side and normalised by the figures of the padded pictures.
    With `verify`, the checksums of the cached arrays are computed and a damaged cache is built again.
    """
    if name == EMBEDDED:
        return _embedded(side)
    if name not in SETS:
        raise unknown("set", name, [*SETS, EMBEDDED])
    spec = SETS[name]
    pad = padding(name, spec.shape[1], side)
    frame = Frame(spec.shape, spec.resize, pad)
    train, test = find(spec, data)
    identity = {"files": fingerprint([*train, *test]), "shape": frame.result, "pad": pad}

    def source() -> Source:
        trained, tested = ([Table.open(file) for file in files] for files in (train, test))
        return from_parquet(trained, tested, frame, spec.classes)

    held = stored(name if pad == 0 else f"{name}-padded{pad}", identity, source, verify)
    mean, std = (spec.mean, spec.std) if pad == 0 or spec.padded is None else spec.padded
    return from_stored(name, held, Inputs(mean, std))


def from_stored(name: str, held: Stored, inputs: Inputs, names: Sequence[str] | None = None) -> Pictures:
    """Return the pictures of a cache entry, whose first rows train, the next ones validate, and the others test."""
    trained = held.record["trained"]
    validated = trained + held.record.get("validated", 0)
    train, valid, test = np.split(np.arange(held.record["rows"]), [trained, validated])
    chosen = tuple(names or held.record["names"])
    return Pictures(name, held.x, held.y, train, test, chosen, inputs, valid=valid if len(valid) else None)


def padding(name: str, given: int, side: int | None) -> int:
    """Return how many zeros on each side bring `given` pixels to `side`."""
    if side is None:
        return 0
    if side < given or (side - given) % 2:
        raise HatrackError(
            f"{name}: pictures of {given}×{given} cannot be padded to {side}×{side}; the side must be "
            f"{given} or larger by an even number."
        )
    return (side - given) // 2


def _embedded(side: int | None) -> Pictures:
    x, y = digits()
    pad = padding(EMBEDDED, x.shape[-1], side)
    train, test = fixed_test(y, share=0.2)
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))) if pad else x
    return Pictures(EMBEDDED, padded, y, train, test, tuple(str(label) for label in range(10)), DIGIT_INPUTS)


@cache
def digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the 1,797 handwritten digits that scikit-learn ships: (n, 1, 8, 8) scaled to 0–255, and their labels."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pictures = np.round(raw.images * (255 / 16)).astype(np.uint8)[:, None]
    return pictures, raw.target.astype(np.int64)
