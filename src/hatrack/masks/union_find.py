"""Units that turn out to be one: a union-find over unit numbers, vectorised.

Number 0 is special: it stands for "always on" (a network input, a constant, or a unit that had to be pinned
because something reads it that we cannot gate). Merging a unit with 0 pins it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

ALWAYS_ON = 0


class UnionFind:
    """Hands out unit numbers and merges them; the smallest number of a merged set represents it."""

    def __init__(self) -> None:
        self._parent = np.zeros(1, dtype=np.int64)
        self.births: list[tuple[str, int, int]] = []  # (writer, first number, how many)

    def fresh(self, writer: str, count: int) -> Tensor:
        """Return `count` new units born at `writer`."""
        first = len(self._parent)
        self._parent = np.concatenate([self._parent, np.arange(first, first + count)])
        self.births.append((writer, first, count))
        return torch.arange(first, first + count)

    def roots(self, ids: Tensor) -> Tensor:
        """Return the representative of each unit."""
        return torch.from_numpy(self._parent)[ids]

    def everything(self) -> Tensor:
        """Return all unit numbers handed out, "always on" included."""
        return torch.arange(len(self._parent))

    def live(self, ids: Tensor) -> Tensor:
        """Return the representatives found in `ids`, each once, without "always on"."""
        found: Tensor = self.roots(compact(ids)).unique()
        return found[found != ALWAYS_ON]

    def varies(self, ids: Tensor, axis: int) -> bool:
        """Whether different units stand along `axis`."""
        return not constant_along(ids, axis) and not constant_along(self.roots(compact(ids)), axis)

    def along(self, ids: Tensor, *axes: int) -> Tensor:
        """Return `ids` with every axis but `axes` of length one, after merging what shares a place on those."""
        kept = {axis % ids.ndim for axis in axes}
        for axis in range(ids.ndim):
            if axis not in kept:
                if self.varies(ids, axis):
                    self.merge(ids, ids.narrow(axis, 0, 1))
                ids = ids.narrow(axis, 0, 1)
        return ids

    def merge(self, a: Tensor, b: Tensor) -> None:
        """Declare that a[i] and b[i] are the same unit, for every i (shapes broadcast)."""
        a, b = torch.broadcast_tensors(compact(a), compact(b))
        if not a.numel():
            return
        pairs = np.unique(np.stack([a.reshape(-1).numpy(), b.reshape(-1).numpy()]), axis=1)
        left: npt.NDArray[np.int64] = pairs[0]
        right: npt.NDArray[np.int64] = pairs[1]
        while True:
            low, high = self._parent[left], self._parent[right]
            if np.array_equal(low, high):
                return
            smaller = np.minimum(low, high)
            np.minimum.at(self._parent, low, smaller)
            np.minimum.at(self._parent, high, smaller)
            while not np.array_equal(self._parent, shorter := self._parent[self._parent]):
                self._parent = shorter

    def pin(self, ids: Tensor) -> None:
        """Declare that these units are always on."""
        self.merge(ids, torch.zeros(1, dtype=torch.long))


def compact(ids: Tensor) -> Tensor:
    """Shorten to one the axes along which `ids` only repeats: same content under broadcasting, far smaller."""
    for axis in range(ids.ndim):
        if ids.shape[axis] > 1 and constant_along(ids, axis):
            ids = ids.narrow(axis, 0, 1)
    return ids


def constant_along(ids: Tensor, axis: int) -> bool:
    """Whether `ids` does not change along `axis`."""
    if ids.shape[axis] <= 1 or ids.stride(axis) == 0:
        return True
    if not bool((ids.select(axis, 0) == ids.select(axis, 1)).all()):
        return False
    return bool((ids == ids.narrow(axis, 0, 1)).all())
