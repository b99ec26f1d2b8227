"""Time series in .ts files, the text format of the UCR and UEA archives: a header, then a line a series.

    # a remark
    @classLabel true slow fast
    @data
    0.1,0.2,?,0.4:1.0,1.1:slow

Classes are numbered in the order of the header. A line holds the channels, colons between them, each of its own length
and ? where a value is missing; then the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hatrack.errors import HatrackError, unknown

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """The channels of every series, nan where a value is missing; labels, and the names of the classes."""

    channels: list[list[Values]]
    labels: list[int]
    names: tuple[str, ...]


def read_ts(path: Path) -> Series:
    """Return the series of a .ts file; timestamps, figures to be predicted and broken lines are refused."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HatrackError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    names: tuple[str, ...] = ()
    found: list[tuple[list[Values], int]] = []
    begun = False
    for number, line in enumerate(map(str.strip, lines), start=1):
        where = f"{path}, line {number}"
        if not line or line.startswith(("#", "%")):
            continue
        if begun:
            found.append(_series(where, line, names))
        elif line.startswith("@"):
            key, *words = line.split()
            begun = key.lower() == "@data"
            if key.lower() == "@classlabel" and words[:1] == ["true"]:
                names = tuple(words[1:])
            if key.lower() == "@timestamps" and [word.lower() for word in words] != ["false"]:
                raise HatrackError(f"{where}: series with timestamps are not read; give values at equal distances.")
            if begun and not names:
                raise HatrackError(f"{where}: the header names no classes; write @classLabel true and their names.")
        else:
            raise HatrackError(f"{where}: values stand before @data, got {line!r:.60}.")
    if not found:
        raise HatrackError(f"{path} holds no series.")
    counts = {len(channels) for channels, _ in found}
    if len(counts) > 1:
        raise HatrackError(f"{path}: series have {min(counts)} to {max(counts)} channels; all must have as many.")
    return Series([channels for channels, _ in found], [label for _, label in found], names)


def _series(where: str, line: str, names: Sequence[str]) -> tuple[list[Values], int]:
    """Return the channels and the label that a line holds."""
    *channels, name = line.split(":")
    name = name.strip()
    if not channels:
        raise HatrackError(f"{where}: a channel needs values, and the class, after a colon; got {line!r:.60}.")
    if name not in names:
        raise unknown(f"class in {where},", name, names)
    return [_values(where, channel) for channel in channels], names.index(name)


def _values(where: str, text: str) -> Values:
    words = [word.strip() for word in text.split(",")]
    try:
        values = np.array([np.nan if word == "?" else float(word) for word in words])
    except ValueError as error:
        raise HatrackError(f"{where}: {error}; values are numbers, or ? where one is missing.") from None
    if np.isinf(values).any() or np.isnan(values).all():
        raise HatrackError(f"{where}: a channel needs finite values, got {text!r:.60}.")
    return values


def resampled(values: Values, length: int) -> Values:
    """Return a channel at `length` points from its first value to its last, missing ones interpolated.

    With k = ⌈n / length⌉: x at k · length points, of which every k are averaged, for points alone would alias what
    changes faster than they follow each other; k = 1, where nothing is averaged, as long as n ≤ length.
    """
    each = -(-len(values) // length)
    here = np.flatnonzero(~np.isnan(values))
    points = np.linspace(0, len(values) - 1, each * length)
    means: Values = np.interp(points, here, values[here]).reshape(length, each).mean(1)
    return means
