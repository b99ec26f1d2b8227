"""A .npy body → an array, without numpy.load: nothing is unpickled or unzipped, and no size is believed."""

from __future__ import annotations

import io
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hatrack.serve.refused import Refused

_HEADS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read(body: bytes) -> NDArray[Any]:
    """Return the array, a view of the body where it is stored row by row."""
    file = io.BytesIO(body)
    try:
        version = npy.read_magic(file)
        shape, by_columns, dtype = _HEADS[version](file)
    except (KeyError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise Refused("the body is no .npy file that numpy.save writes.") from None
    if dtype.kind not in "iuf":
        raise Refused(f"the .npy holds {dtype}; expected integers or floats.")
    held = len(body) - file.tell()
    if held != prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
        raise Refused(f"the .npy says shape {shape} of {dtype}, and {held} bytes follow.")
    return np.frombuffer(body, dtype, offset=file.tell()).reshape(shape, order="F" if by_columns else "C")
