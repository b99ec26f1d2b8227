"""Episodic memory: a few samples of every finished task, as the network saw them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.data.packing import Packing
from hatrack.methods.parts.declared import Part, kept
from hatrack.targets import Target
from hatrack.tree import at, named, unnamed

ROWS_BATCH = 1000


@dataclass(init=False, eq=False)
class EpisodicMemory(Part):
    """Prepared inputs (x/…), targets by task (y/<task>) and task numbers (source); empty before a task has ended."""

    held: dict[str, Tensor] = kept("memory")

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __len__(self) -> int:
        return len(self.held["source"]) if self.held else 0

    def add(self, feed: Feed, task: int, per_class: int, target: Target) -> None:
        """Keep up to `per_class` random samples of every class of a task; of what has no classes, so many in all."""
        labels = target.strata(feed.labels())
        mixed = torch.randperm(len(labels)).to(labels.device)
        ranked = mixed[labels[mixed].argsort(stable=True)]  # by class, in random order within
        counts = torch.bincount(labels)
        place = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels[ranked]]
        chosen = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
        chosen[ranked[place < per_class]] = True
        inputs: list[dict[str, Tensor]] = []
        targets: list[Tensor] = []
        start = 0
        for batch in feed.batches(ROWS_BATCH):
            rows = chosen[start : start + len(batch.y)]
            inputs.append(named(at(batch.x, rows)))
            targets.append(batch.y[rows].to(self._device))
            start += len(batch.y)
        y = torch.cat(targets)
        new = {f"x/{name}": torch.cat([part[name] for part in inputs]).to(self._device) for name in inputs[0]}
        new["source"] = torch.full((len(y),), task, device=self._device)
        joined = {name: torch.cat([self.held[name], more]) for name, more in new.items()} if self.held else new
        self.held = {**self.held, **joined, f"y/{task}": y}

    def draw(self, size: int) -> Batch:
        """Return `size` random samples of all tasks, or all of them where there are no more."""
        targets = {int(name.removeprefix("y/")): y for name, y in self.held.items() if name.startswith("y/")}
        packing = Packing(targets)
        ordered = [targets[task] for task in sorted(targets)]
        y = torch.cat([packing.packed(part) for part in ordered] if packing.needed else ordered)
        parts = {name.removeprefix("x/"): x for name, x in self.held.items() if name.startswith("x/")}
        rows = torch.arange(len(self), device=self._device)
        if len(self) > size:
            rows = torch.randperm(len(self), device=self._device)[:size]
        x, source = at(unnamed(parts), rows), self.held["source"][rows]
        return Batch(x, y[rows], source, packing=packing if packing.needed else None)
