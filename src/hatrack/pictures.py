"""One encoded picture → pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hatrack.errors import HatrackError

_FORMATS = ("PNG", "JPEG")
_EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def pixels(
    where: str, raw: bytes, shape: tuple[int, int, int], *, resize: bool = False, foreign: bool = False
) -> NDArray[np.uint8]:
    """Return a picture as (channels, height, width); without `resize` another size is refused before it is decoded.

    `foreign`: it comes from anybody; only PNG and JPEG are opened, and more than 8 bits a channel are refused, which
    Pillow would cut off.
    """
    channels, height, width = shape
    with opened(where, raw, foreign) as picture:
        if picture.size != (width, height) and not resize:
            raise HatrackError(
                f"{where}: the picture is {picture.width} wide and {picture.height} high, expected "
                f"{width} and {height}."
            )
        if foreign and picture.mode not in _EIGHT_BITS:
            raise HatrackError(f"{where}: the picture has pixels of the kind {picture.mode}, not 8 bits a channel.")
        picture.load()
        mode = "L" if channels == 1 else "RGB"
        if picture.mode != mode:
            picture = picture.convert(mode)
        if picture.size != (width, height):
            picture = picture.resize((width, height), _pillow().Resampling.BICUBIC)
        rows: NDArray[np.uint8] = np.asarray(picture).reshape(height, width, channels)
    return rows.transpose(2, 0, 1)


@contextmanager
def opened(where: str, raw: bytes, foreign: bool = False) -> Iterator[Any]:
    """Give the Pillow picture behind `raw`; whatever fails in reading it raises the error that names `where`."""
    image = _pillow()
    try:
        with image.open(io.BytesIO(raw), formats=_FORMATS if foreign else None) as picture:
            yield picture
    except HatrackError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, image.DecompressionBombError) as error:
        raise HatrackError(f"{where}: the picture is broken or truncated ({error}).") from error


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise HatrackError(f"reading pictures needs Pillow ({error}); install it: pip install pillow") from error
