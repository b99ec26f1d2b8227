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
from hatrack.nets.model import Model


@dataclass(init=False, eq=False)
class WeightMasks(Part):
    """Masks on the parameters that tasks share, or on those with two axes or more alone: biases stay as they are.

    A finished task's masks have the width that the network had then.
    """

    def __init__(self, model: Model, shared: Mapping[str, Tensor], biases: bool = False) -> None:
        super().__init__()
        self.model = model
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

    def of_width(self, task: int | None) -> dict[str, Tensor]:
        """Return the parameters that are masked at the width of a task, whatever their values; None: as they are."""
        if task is None or self.model.generation(task) is None:
            return self.masked
        own = self.model.width(task).tensors()
        return {name: own[name] for name in self.masked}

    def entries(self, tasks: int) -> int:
        """Return how many entries the masks of so many tasks have together."""
        return sum(self.entries_of(task) for task in range(tasks))

    def entries_of(self, task: int) -> int:
        """Return how many entries a task's mask has."""
        return sum(p.numel() for p in self.of_width(task).values())

    def by_name(self, flat: Tensor, task: int | None = None) -> dict[str, Tensor]:
        """Cut a vector over all entries (at the width of a task) into one tensor a parameter."""
        own = self.of_width(task)
        parts = flat.split([p.numel() for p in own.values()])
        return {name: part.view_as(p) for (name, p), part in zip(own.items(), parts, strict=True)}

    def weights(self, masks: Mapping[str, Tensor], task: int) -> dict[str, Tensor]:
        """Return W ⊙ M at the width of a task; closed boolean masks give exact zeros."""
        own = self.masked if self.model.generation(task) is None else self.model.at(task).tensors()
        return {name: apply(mask, own[name]) for name, mask in masks.items()}

    def fixed(self, tasks: int) -> dict[str, Tensor]:
        """Return, as shares of use, what so many tasks use of the parameters that no mask stands on: all there was."""
        last = max((task for task in self.model.remaining if task < tasks), default=None)
        if last is None:
            return {name: torch.zeros_like(p) for name, p in self.others.items()}
        own = self.model.width(last).tensors()
        return self.model.spread(last, {name: torch.ones_like(own[name]) for name in self.others})

    def in_all(self, masks: Mapping[str, Tensor], tasks: int) -> dict[str, Tensor]:
        """Return masks over the entries of now as shares of use, with what so many tasks use of the others."""
        found = {**{name: mask.float() for name, mask in masks.items()}, **self.fixed(tasks)}
        return {name: found[name] for name in self.shared}

    def complete(self, masks: Mapping[str, Tensor], task: int) -> dict[str, Tensor]:
        """Return a task's masks as shares of use of the entries of now, with the parameters that it uses as a whole."""
        return self.in_all(self.model.spread(task, masks), task + 1)


@dataclass(init=False, eq=False)
class PackedMasks(WeightMasks):
    """Finished tasks' masks, packed where they are of 0 and 1."""

    packed: list[Tensor] = kept("mask", host=True)

    def keep(self, mask: Tensor) -> None:
        """Take in a finished task's mask over all entries, boolean or of soft gates."""
        self.packed.append(pack(mask) if mask.dtype == torch.bool else mask.cpu())

    def flat(self, task: int) -> Tensor:
        """Return a finished task's mask as a vector."""
        kept = self.packed[task]
        mask = kept if kept.is_floating_point() else unpack(kept, self.entries_of(task))
        return mask.to(self.model.device)

    def of(self, task: int) -> dict[str, Tensor]:
        """Return a finished task's masks."""
        return self.by_name(self.flat(task), task)

    def bits(self, task: int) -> dict[str, tuple[str, str, int]]:
        """Return where a finished task's mask of each parameter stands in `state`; of soft or narrower ones nothing."""
        if self.packed[task].is_floating_point() or self.model.generation(task) is not None:
            return {}
        starts = accumulate(self.sizes[:-1], initial=0)
        return {name: ("bits", f"mask/{task}", start) for name, start in zip(self.masked, starts, strict=True)}

    def union(self, apart: Container[int] = ()) -> Tensor:
        """Return, as a vector, how much of an entry any finished task uses: booleans, or the largest of soft gates.

        `apart`: those that do not count.
        """
        taken = torch.zeros(sum(self.sizes), dtype=torch.bool, device=self.model.device)
        for task, mask in enumerate(self.packed):
            if task in apart or not len(mask):  # of a task that was released nothing is left
                continue
            wide = self.flat(task)
            if self.model.generation(task) is not None:
                wide = torch.cat([part.flatten() for part in self.model.spread(task, self.of(task)).values()])
            taken = torch.maximum(taken, wide)
        return taken


def pack(mask: Tensor) -> Tensor:
    """Return a flat boolean mask as bytes of eight entries."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy()))


def unpack(packed: Tensor, count: int) -> Tensor:
    """Return the first `count` entries of a packed mask."""
    return torch.from_numpy(np.unpackbits(packed.cpu().numpy(), count=count)).bool()
