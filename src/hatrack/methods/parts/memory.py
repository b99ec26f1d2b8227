"""Episodic memory: a few samples of every finished task, as the network saw them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.methods.parts.declared import Part, kept

ROWS_BATCH = 1000


@dataclass(init=False, eq=False)
class EpisodicMemory(Part):
    """Prepared inputs (x), labels (y) and task numbers (source); empty before the first task has ended."""

    held: dict[str, Tensor] = kept("memory")

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __len__(self) -> int:
        return len(self.held["y"]) if self.held else 0

    def add(self, feed: Feed, task: int, per_class: int) -> None:
        """Keep up to `per_class` random samples of every class of a task."""
        labels = feed.labels()
        mixed = torch.randperm(len(labels)).to(labels.device)
        ranked = mixed[labels[mixed].argsort(stable=True)]  # by class, in random order within
        counts = torch.bincount(labels)
        place = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels[ranked]]
        chosen = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
        chosen[ranked[place < per_class]] = True
        picked, start = [], 0
        for batch in feed.batches(ROWS_BATCH):
            rows = chosen[start : start + len(batch.y)]
            picked.append((batch.x[rows], batch.y[rows]))
            start += len(batch.y)
        x, y = (torch.cat(part).to(self._device) for part in zip(*picked, strict=True))
        new = {"x": x, "y": y, "source": torch.full_like(y, task)}
        self.held = {name: torch.cat([self.held[name], more]) for name, more in new.items()} if self.held else new

    def draw(self, size: int) -> Batch:
        """Return `size` random samples of all tasks, or all of them where there are no more."""
        if len(self) <= size:
            return Batch(**self.held)
        rows = torch.randperm(len(self), device=self._device)[:size]
        return Batch(**{name: values[rows] for name, values in self.held.items()})
