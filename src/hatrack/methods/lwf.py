"""LWF, learning without forgetting. Li & Hoiem 2017; as run by Serrà et al. 2018.

    loss     loss on the new task + λ·Σ_τ D(head τ now, head τ as it was) over the old heads τ
    D        −Σ_k p_k·log q_k on the *new* task's samples, p and q the softmax of old and present logits over T; what
             other targets than classes have for it (`Target.distance`)

The old answers come from a frozen copy of network and heads in evaluation mode, taken when the last task ended: one
network, however many tasks. Old heads learn along, as in the paper; no warm-up of the new head.

Deviation. The present answers are taken with dropout off as well, in a second pass: with dropout on they differ where
nothing has changed, and to mend that the old heads unlearn their own samples (permuted digits, 5 tasks: 56 % in the
end, against 91 %). λ and T are those of HAT's baseline, which adds the distillation to the validation loss too; here
that is the new task's cross-entropy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.distillation import Teacher
from hatrack.modes import evaluating
from hatrack.nets.model import Model


@dataclass
class LWF(Method):
    """Keep the old heads' answers to the new task's samples."""

    name: ClassVar[str] = "lwf"
    family: ClassVar[str] = "distillation, replay, optimisation"
    source: ClassVar[str] = "Li & Hoiem 2017"
    summary: ClassVar[str] = "old heads keep their answers to the new task's samples"
    stores: ClassVar[str] = "4·P bytes in all: the old network"
    distils: ClassVar[bool] = True

    clip: float = hyper(100.0, "norm at which gradients are clipped", low=0.0)
    lam: float = hyper(2.0, "λ: weight of the distillation", low=0.0, search=(0.1, 10.0, "log"))
    temperature: float = hyper(1.0, "T: softens the answers that are compared", low=1e-3, search=(0.5, 4.0, "log"))

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.teacher = Teacher(model)

    def trainable(self) -> dict[str, Tensor]:
        old = {
            f"heads/{t}/{name}": p
            for t, head in enumerate(self.model.heads[: self.task])
            for name, p in head.named_parameters()
        }
        return {**super().trainable(), **old}

    def loss(self, batch: Batch) -> Tensor:
        loss = super().loss(batch)
        if self.task:
            with evaluating(self.model.net):
                features = self.model.features(batch.x, self.task)
            told = zip(self.model.targets, self.model.heads, self.teacher.logits(batch.x, self.task), strict=False)
            kept = [target.distance(head(features), then, self.temperature) for target, head, then in told]
            loss = loss + self.lam * torch.stack(kept).sum()
        return loss

    def end_task(self, feed: Feed) -> None:
        self.teacher.learn(heads=self.task + 1)
