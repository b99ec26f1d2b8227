"""Masks on single weights: which they stand on, what finished tasks keep of them, and how they are scored.

forward  W ⊙ M; a finished task's M is kept at one bit a weight, soft gates as they are
scores   M = 1 for the share `keep` of a layer's entries with the largest |score|, 0 elsewhere; backward straight
through the mask: dL/d|score| = dL/dM
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from hatrack.masks.gates import apply
from hatrack.methods.parts.declared import Part, kept


@dataclass(init=False, eq=False)
class WeightMasks(Part):
    """Masks on the parameters that tasks share, or on those with two axes or more alone: biases stay as they are."""

    def __init__(self, shared: Mapping[str, Tensor], biases: bool = False) -> None:
        super().__init__()
        self.shared = dict(shared)
        self.masked = {name: p for name, p in shared.items() if biases or p.ndim > 1}

    @property
    def others(self) -> dict[str, Tensor]:
        """The shared parameters that no mask stands on."""
        return {name: p for name, p in self.shared.items() if name not in self.masked}

    @property
    def sizes(self) -> list[int]:
        """The numbers of entries."""
        return [p.numel() for p in self.masked.values()]

    def by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Cut a vector over all entries into one tensor a parameter."""
        parts = flat.split(self.sizes)
        return {name: part.view_as(p) for (name, p), part in zip(self.masked.items(), parts, strict=True)}

    def weights(self, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return W ⊙ M; closed boolean masks give exact zeros."""
        return {name: apply(mask, self.masked[name]) for name, mask in masks.items()}

    def complete(self, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return masks as shares of use, with those of the parameters that every task uses as a whole."""
        return {n: masks[n].float() if n in masks else torch.ones_like(p) for n, p in self.shared.items()}


@dataclass(init=False, eq=False)
class PackedMasks(WeightMasks):
    """Finished tasks' masks, packed where they are of 0 and 1."""

    packed: list[Tensor] = kept("mask", host=True)

    def keep(self, mask: Tensor) -> None:
        """Take in a finished task's mask over all entries, boolean or of soft gates."""
        self.packed.append(pack(mask) if mask.dtype == torch.bool else mask.cpu())

    def flat(self, task: int) -> Tensor:
        """Return a finished task's mask as a vector."""
        return self._unpacked(self.packed[task]).to(next(iter(self.masked.values())).device)

    def _unpacked(self, kept: Tensor) -> Tensor:
        return kept if kept.is_floating_point() else unpack(kept, sum(self.sizes))

    def of(self, task: int) -> dict[str, Tensor]:
        """Return a finished task's masks."""
        return self.by_name(self.flat(task))

    def bits(self, task: int) -> dict[str, tuple[str, str, int]]:
        """Return where a finished task's mask of each parameter stands in `state`; nothing of soft gates."""
        if self.packed[task].is_floating_point():
            return {}
        starts = accumulate(self.sizes[:-1], initial=0)
        return {name: ("bits", f"mask/{task}", start) for name, start in zip(self.masked, starts, strict=True)}

    def union(self, apart: Container[int] = ()) -> Tensor:
        """Return, as a vector, how much of an entry any finished task uses: booleans, or the largest of soft gates.

        `apart`: those that do not count.
        """
        taken = torch.zeros(sum(self.sizes), dtype=torch.bool)
        there = (mask for task, mask in enumerate(self.packed) if task not in apart)
        for mask in filter(len, there):  # of a task that was released nothing is left
            taken = torch.maximum(taken, self._unpacked(mask))
        return taken.to(next(iter(self.masked.values())).device)


def pack(mask: Tensor) -> Tensor:
    """Return a flat boolean mask as bytes of eight entries."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy()))


def unpack(packed: Tensor, count: int) -> Tensor:
    """Return the first `count` entries of a packed mask."""
    return torch.from_numpy(np.unpackbits(packed.cpu().numpy(), count=count)).bool()
