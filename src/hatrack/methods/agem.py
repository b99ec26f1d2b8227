"""A-GEM, averaged gradient episodic memory. Chaudhry et al. 2019, "Efficient lifelong learning with A-GEM".

    reference  g_ref = gradient of the loss on a random batch from the memory of all old tasks
    projection g ← g − (g·g_ref)/(g_ref·g_ref)·g_ref where g·g_ref < 0, untouched otherwise

so that a step does not raise, to first order, the mean loss on the memory. The gradient is that of all parameters at
once: the network, the new head and the old heads (which move with g_ref when a step is corrected). Memory: random
samples of every class; 25 a class and reference batches of 256 are the paper's for MNIST. The paper sees every
sample once; here A-GEM trains as long as every other method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.memory import EpisodicMemory
from hatrack.methods.parts.own_heads import OwnHeads
from hatrack.nets.model import Model


@dataclass
class AGEM(Method):
    """Turn gradients that would raise the loss on a memory of old samples."""

    name: ClassVar[str] = "a-gem"
    family: ClassVar[str] = "distillation, replay, optimisation"
    source: ClassVar[str] = "Chaudhry et al. 2019"
    summary: ClassVar[str] = "gradients are projected so as not to raise the loss on a small memory"
    stores: ClassVar[str] = "25 samples a class"
    keeps_samples: ClassVar[bool] = True

    per_class: int = hyper(25, "samples kept of every class of an old task", low=1, search=(5, 100, "log"))
    memory_batch: int = hyper(256, "samples of the memory in a reference gradient", low=1)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.memory = EpisodicMemory(model.device)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._heads = OwnHeads(self.model)

    def trainable(self) -> dict[str, Tensor]:
        return {**{f"net/{n}": p for n, p in self.model.parameters().items()}, **self._heads.parameters()}

    def after_backward(self) -> None:
        if not len(self.memory):
            return
        batch = self.memory.draw(self.memory_batch)
        loss = self._heads.loss(self.model.features(batch.x, self.task), batch, self.task)
        moved = list(self.trainable().values())
        found = torch.autograd.grad(loss, moved, allow_unused=True)
        pairs = [(p, g) for p, g in zip(moved, found, strict=True) if g is not None]
        for p, g in pairs:
            if p.grad is None:  # an old head: the new task's loss does not reach it
                p.grad = torch.zeros_like(g)
        project([p.grad for p, _ in pairs if p.grad is not None], [g for _, g in pairs])

    def end_task(self, feed: Feed) -> None:
        self.memory.add(feed, self.task, self.per_class, self.target)


@torch.no_grad()
def project(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
    """Take out of `gradients`, in place, their part along `reference` where the two point apart."""
    g: Any = list(gradients)
    along = torch.stack([(a * b).sum() for a, b in zip(g, reference, strict=True)]).sum()
    square = torch.stack([(b * b).sum() for b in reference]).sum()
    share = torch.where(along < 0, along / square, 0.0)
    torch._foreach_sub_(g, torch._foreach_mul(list(reference), share))
