"""Inputs: read as tensors, and how raw ones are prepared on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hatrack.data.resident import view
from hatrack.errors import HatrackError
from hatrack.tree import leaves, mapped, named, rebuilt


@dataclass(frozen=True)
class Inputs:
    """What is done to raw inputs on the device: uint8 → [0, 1], then (x − mean)/std, then a permutation.

    mean and std are per channel (axis 1) or a single figure. The permutation indexes the flattened sample. `ids`:
    bytes are numbers of words, not brightness, and stay whole; without a word it is what the network can take.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    permutation: tuple[int, ...] | None = None
    ids: bool | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise HatrackError(f"Inputs needs mean and std of the same length, got {self.mean} and {self.std}.")

    @property
    def plain(self) -> bool:
        """Whether nothing is done but to turn bytes into numbers."""
        return self.mean is None and self.permutation is None

    def on(self, device: torch.device) -> Callable[[Any], Any]:
        """Return what prepares a batch, its constants already on `device`, so that a batch costs no host round trip."""
        mean = None if self.mean is None else torch.tensor(self.mean, device=device)
        inv_std = None if self.std is None else 1.0 / torch.tensor(self.std, device=device)
        order = None if self.permutation is None else torch.tensor(self.permutation, device=device)

        def prepare(x: Any) -> Any:
            x = mapped(self.as_numbers, x)
            if mean is not None and inv_std is not None:
                shape = (1, -1) + (1,) * (x.ndim - 2)
                x = (x - mean.view(shape)).mul_(inv_std.view(shape))
            return x if order is None else x.flatten(1).index_select(1, order).view(x.shape)

        return prepare

    def as_numbers(self, x: Tensor) -> Tensor:
        """Return bytes as numbers from 0 to 1, or as whole numbers where they are ids; anything else as it is."""
        return x.long() if self.ids and x.dtype == torch.uint8 else as_floats(x)


def as_inputs(given: Any, what: str = "inputs") -> Any:
    """Return inputs as a tensor, or a tuple or dict of tensors.

    NumPy's float64, a default, becomes float32; a tensor's is a choice, and stays.
    """
    parts = several(given)
    if parts is not None:
        if not leaves(parts):
            raise HatrackError(f"{what} must hold at least one tensor, got an empty {type(given).__name__}.")
        return rebuilt(parts, [as_inputs(part, f"{what} {name!r}") for name, part in named(parts).items()])
    x = as_tensor(given, what)
    return x.float() if x.dtype == torch.float64 and not isinstance(given, Tensor) else x


def several(given: Any) -> dict[str, Any] | tuple[Any, ...] | None:
    """Return what is several inputs as a dict or a tuple; None for what is one."""
    if isinstance(given, Mapping):
        return dict(given)
    whole = isinstance(given, tuple) and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in given)
    return given if whole else None


def as_tensor(given: Any, what: str) -> Tensor:
    try:
        return view(given) if isinstance(given, np.ndarray) else torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        kind = getattr(given, "dtype", type(given).__name__)
        raise HatrackError(f"{what} must be numbers (a tensor, an array or a list of them), got {kind}.") from None


def as_floats(x: Tensor) -> Tensor:
    """Return bytes as numbers from 0 to 1, anything else as it is."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x
