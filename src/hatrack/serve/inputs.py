"""What a request holds → arrays as the network takes them, a row a sample.

What `learner.predict` would take is taken: figures within reach of those learned, bytes where bytes were learned.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hatrack.errors import HatrackError
from hatrack.pictures import pixels
from hatrack.serve.exported import Card, Input
from hatrack.serve.refused import Refused

Arrays = dict[str, NDArray[Any]]
MOST = 4096  # samples that one request may hold, and that may wait for one task
_WORDS = {str: "a text", bool: "true or false", type(None): "null", float: "a fraction"}
_DATA_URL = re.compile(r"data:image/(?:png|jpeg);base64,")


def arrays(card: Card, given: Any, uint8: bool = False) -> Arrays:
    """Return a request's samples; `given` is one sample or several, a dict of them where there are several inputs."""
    names = [part.name for part in card.inputs]
    if not isinstance(given, Mapping):
        if len(names) > 1:
            raise Refused(f"task {card.task!r} has several inputs; give an object with {_listed(names)}.")
        given = {names[0]: given}
    if set(given) != set(names):
        raise Refused(f"task {card.task!r} takes {_listed(names)}; got {_listed(map(str, given)) or 'none'}.")
    found = {part.name: _rows(part, given[part.name], uint8, card.task) for part in card.inputs}
    if len({len(rows) for rows in found.values()}) > 1:
        raise Refused(f"{_listed(names)} must have as many samples each, got {[len(x) for x in found.values()]}.")
    return found


def _rows(part: Input, value: Any, uint8: bool, task: str) -> NDArray[Any]:
    where = f"input {part.name!r} of task {task!r}"
    if isinstance(value, str) or (isinstance(value, list) and value and set(map(type, value)) == {str}):
        value = _pictures(part, [value] if isinstance(value, str) else value, where)
    if isinstance(value, list) and part.shape and len(value) > part.shape[0]:
        _count(len(value))  # before all of them are gone through
    figures = value if isinstance(value, np.ndarray) else _figures(part, value, uint8, where)
    if figures.shape == part.shape:
        figures = figures[None]
    if figures.shape[1:] != part.shape or figures.ndim == 0 or len(figures) == 0:
        raise _misshapen(part, where, f"shape {figures.shape}")
    _count(len(figures))
    return np.ascontiguousarray(_taken(part, figures, where))


def _figures(part: Input, value: Any, uint8: bool, where: str) -> NDArray[Any]:
    """Go through nested lists level by level, no deeper than there are axes."""
    shape: list[int] = []
    level = [value]
    while level and set(map(type, level)) == {list} and len(shape) <= len(part.shape):
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise _misshapen(part, where, f"lists of {min(sizes)} and of {max(sizes)} values side by side")
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
    kinds = set(map(type, level))
    if list in kinds:
        raise _misshapen(part, where, "lists nested deeper" if kinds == {list} else "numbers and lists side by side")
    wanted = "uint8" if uint8 else "float64" if part.floats else "int64"
    accepted = {int, float} if wanted == "float64" else {int}
    if not kinds <= accepted:
        numbers = "numbers" if wanted == "float64" else "whole numbers"
        other = min((_WORDS.get(kind, "an object") for kind in kinds - accepted), default="")
        raise Refused(f"{where} takes {numbers}{' or a picture in base64' if part.picture else ''}; got {other}.")
    try:
        return np.array(level, wanted).reshape(shape)
    except OverflowError:
        raise Refused(f"{where}: a number is out of the range of {wanted}.") from None


def _pictures(part: Input, texts: list[str], where: str) -> NDArray[np.uint8]:
    if not part.picture:
        raise Refused(f"{where} takes numbers of shape {part.shape}, no text or picture.")
    _count(len(texts))
    channels, height, width = part.shape
    found = []
    for row, text in enumerate(texts):
        prefix = _DATA_URL.match(text)
        try:
            raw = base64.b64decode(text[prefix.end() if prefix else 0 :], validate=True)
        except ValueError:
            raise Refused(f"{where}, sample {row}: neither numbers nor a PNG or JPEG in base64.") from None
        try:
            found.append(pixels(f"{where}, sample {row}", raw, (channels, height, width), foreign=True))
        except HatrackError as error:
            raise Refused(str(error)) from None
    return np.stack(found)


def _taken(part: Input, figures: NDArray[Any], where: str) -> NDArray[Any]:
    """Return figures in the input's own type; refuse what cannot mean what the learned ones did."""
    given = figures.dtype
    if given == np.uint8 and part.floats and part.bytes:
        divided: NDArray[Any] = np.divide(figures, 255, dtype=part.dtype)
        return divided
    if part.floats != (given.kind == "f"):
        raise Refused(f"{where} takes {part.dtype}{' or uint8' if part.bytes and part.floats else ''}; got {given}.")
    least, most = part.bounds
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        figures = figures if not part.floats else figures.astype(part.dtype)
    low, high = figures.min(), figures.max()
    if not np.isfinite([low, high]).all():
        raise Refused(f"{where} takes finite numbers; got NaN, or more than {part.dtype} holds.")
    if low < least or high > most:
        bytes_too = '; send bytes as a picture, as .npy of uint8, or with "dtype": "uint8"'
        remedy = bytes_too if part.bytes and part.floats else ""
        raise Refused(
            f"{where} got values from {low:g} to {high:g}; it takes {least:g} to {most:g}, and was trained on "
            f"{part.low:g} to {part.high:g}{remedy}."
        )
    return figures.astype(part.dtype)


def _count(samples: int) -> None:
    if samples > MOST:
        raise Refused(f"a request may hold {MOST} samples, got {samples}; send several.", 413)


def _misshapen(part: Input, where: str, got: str) -> Refused:
    several = ("n", *part.shape)
    return Refused(f"{where} takes shape {part.shape}, or ({', '.join(map(str, several))}) for n samples; got {got}.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
