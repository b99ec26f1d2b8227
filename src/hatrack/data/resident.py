"""Arrays where training reads them: as they lie in memory on a CPU, uploaded once to a GPU for all who need them.

Tasks of one benchmark, and several seeds of it, choose rows of the same decoded array. On a CPU they all read the
one that is mapped from disk; on another device they share one copy, which goes when the last of them does.
"""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_HELD: WeakValueDictionary[tuple[Any, ...], Tensor] = WeakValueDictionary()


def resident(x: Tensor | npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return x as a tensor on `device`; copied only where it lies elsewhere, and then once."""
    if isinstance(x, Tensor):
        return x.to(device)
    if device.type == "cpu":
        return view(x)
    key = (x.__array_interface__["data"][0], x.shape, x.strides, x.dtype.str, str(device))
    held = _HELD.get(key)
    if held is None:
        held = view(x).to(device)
        held.source = x  # type: ignore[attr-defined]  # as long as it lives, no other array can have this address
        _HELD[key] = held
    return held


def view(x: npt.NDArray[Any]) -> Tensor:
    """Return an array as a tensor in the same memory, wherever torch can read it there."""
    if any(stride < 0 for stride in x.strides):
        x = np.ascontiguousarray(x)
    if x.flags.writeable:  # nothing to hush, which takes longer than reading one sample of a Dataset
        return torch.from_numpy(x)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(x)  # mapped read-only; nothing here writes to it
