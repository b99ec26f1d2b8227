"""Episodic memory: a few samples of every finished task, as the network saw them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed

ROWS_BATCH = 1000


class EpisodicMemory:
    """Prepared inputs, labels and task numbers; empty before the first task has ended."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: Batch | None = None

    def __len__(self) -> int:
        return 0 if self._held is None else len(self._held.y)

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
        new = Batch(x, y, torch.full_like(y, task))
        if self._held is not None:
            new = Batch(*(torch.cat(pair) for pair in zip(self._parts(self._held), self._parts(new), strict=True)))
        self._held = new

    def draw(self, size: int) -> Batch:
        """Return `size` random samples of all tasks, or all of them where there are no more."""
        assert self._held is not None
        if len(self) <= size:
            return self._held
        rows = torch.randperm(len(self), device=self._device)[:size]
        return Batch(*(part[rows] for part in self._parts(self._held)))

    @staticmethod
    def _parts(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        assert batch.source is not None
        return batch.x, batch.y, batch.source

    def state(self) -> dict[str, Tensor]:
        """Return all samples."""
        if self._held is None:
            return {}
        return dict(zip(("memory/x", "memory/y", "memory/source"), self._parts(self._held), strict=True))

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` returned."""
        if state:
            self._held = Batch(*(state[f"memory/{part}"].to(self._device) for part in ("x", "y", "source")))
