"""Experience replay (ER): a few old samples beside every new batch. Ratcliff 1990, Rolnick et al. 2019; here as the
baseline of Buzzega et al. 2020, "Dark experience for general continual learning", and their code (mammoth).

    loss     mean over the batch and over `memory_batch` samples of the memory, which go through the network as one
    memory   a reservoir of `buffer` samples over the stream of all batches trained on (parts/reservoir.py)

As in their code the stream is what the network is trained on, epoch after epoch: a batch is offered at the end of its
step, and nothing is done where a task ends. So the memory is in use from the second step of the first task on, may hold
a sample twice, and a task that takes more epochs gets a greater share of it. A draw takes none of its places twice.
The size of the memory is not searched: it is what such methods are compared at (200, 500 and 5120 in the paper).

heads="own" is for task-incremental scoring: a sample is answered by its own task's head alone. heads="all" is for
class-incremental scoring: it is told from the classes of all tasks so far, whose logits stand side by side; the
paper's one head has the classes to come as well, here they have no logits yet.

Deviations. A sample is kept as the network saw it, prepared and augmented, and not augmented again (theirs: as it
was before, augmented at every draw); weights of samples count in the new batch alone. The schedule and the best epoch
go by the new task's validation loss under its own head, as for every other method; their rates and numbers of epochs
are fixed. An optimiser that evaluates a batch several times a step offers it as often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.all_heads import AllHeads
from hatrack.methods.parts.declared import scratch
from hatrack.methods.parts.own_heads import OwnHeads
from hatrack.methods.parts.reservoir import Reservoir
from hatrack.nets.model import Model
from hatrack.tree import mapped


@dataclass
class Replay(Method):
    """Learn a few samples from a memory with every batch."""

    name: ClassVar[str] = "replay"
    family: ClassVar[str] = "distillation, replay, optimisation"
    source: ClassVar[str] = "Buzzega et al. 2020 (ER)"
    summary: ClassVar[str] = "every batch is learned with one drawn from a small memory of all tasks"
    stores: ClassVar[str] = "200 samples in all"
    keeps_samples: ClassVar[bool] = True
    shares_batches: ClassVar[bool] = False  # every process would fill a memory of its own

    buffer: int = hyper(200, "samples in the memory, of all tasks together", low=2)
    memory_batch: int = hyper(64, "samples drawn from the memory in a step", low=2)
    heads: str = hyper(
        "own", "the classes a sample is told from: of its own task, or of all tasks so far", choices=("own", "all")
    )

    _seen: Any = scratch()  # the batch of this step, and what is kept of its answers

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.memory = Reservoir(model.device, self.buffer)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._heads = OwnHeads(self.model) if self.heads == "own" else AllHeads(self.model)
        example = next(feed.batches(1))
        self.memory.begin_task(task, example, self._answers(example))

    def _answers(self, example: Batch) -> Tensor:
        """Return something of the form of what is kept of a sample's answers."""
        return torch.zeros(1, 0, device=self.model.device)

    def begin_epoch(self) -> None:
        super().begin_epoch()
        self.memory.begin_epoch()

    def trainable(self) -> dict[str, Tensor]:
        return {**{f"net/{n}": p for n, p in self.model.parameters().items()}, **self._heads.parameters()}

    def loss(self, batch: Batch) -> Tensor:
        self._seen = batch, None
        if self.memory.empty:
            return self._heads.loss(self.model.features(batch.x, self.task), batch, self.task)
        drawn, _ = self.memory.draw(self.memory_batch)
        together = mapped(lambda *parts: torch.cat(parts), batch.x, drawn.x)
        sizes = [len(batch.y), len(drawn.y)]
        new, old = self.model.features(together, self.task).split(sizes)
        share = len(drawn.y) / sum(sizes)
        return (1 - share) * self._heads.loss(new, batch, self.task) + share * self._heads.loss(old, drawn, self.task)

    def after_backward(self) -> None:
        super().after_backward()
        batch, answers = self._seen
        self.memory.add(batch, self.task, answers)
        self._seen = None
