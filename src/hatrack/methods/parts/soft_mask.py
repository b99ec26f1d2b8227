"""The training rule of SPG and its kin, apart from how they measure importance.

training  g ← (1 − γ^{≤t−1})·g for every parameter of the network
          g ← (1 − mean of all γ^{≤t−1})·g for the head, which has no γ of its own yet (published code)
after t   γ^{≤t} = max(γ^t, γ^{≤t−1}); nothing else is kept
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import progress, scratch
from hatrack.methods.parts.gradient_mask import GradientMask


@dataclass
class SoftMask(GradientMask):
    """Gradients weakened by importances between 0 and 1, taken at the end of a task or after one of its epochs."""

    lr: float = hyper(0.25, "learning rate at the start of every task", low=0.0, search=(0.005, 0.5, "log"))
    lr_min: float = hyper(1e-3, "training on a task stops when the learning rate falls below", low=0.0)
    importance_epoch: int = hyper(
        0, "take the importance after this epoch; 0 = at the end of the task", low=0, search=(0, 1, 10, 20)
    )

    epochs: Tensor = progress("epochs")  # begun in this task; on the host, where it is asked for
    early: dict[str, Tensor] = progress("early")
    _head_pass: Tensor | None = scratch()

    def measured(self, feed: Feed) -> dict[str, Tensor]:
        """Return γ^t of the network as it stands; its mode may be changed."""
        raise NotImplementedError

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._feed = feed
        self.epochs = torch.zeros((), dtype=torch.long)
        self.early = {name: torch.zeros_like(p) for name, p in self.shared().items()} if self.importance_epoch else {}
        self._head_pass = None
        if self.importance:
            self._head_pass = 1 - torch.cat([amount.flatten() for amount in self.amounts().values()]).mean()

    def begin_epoch(self) -> None:
        if self.importance_epoch and int(self.epochs) == self.importance_epoch:
            for name, value in self.measured(self._feed).items():
                self.early[name].copy_(value)
        self.epochs += 1
        super().begin_epoch()

    def after_backward(self) -> None:
        super().after_backward()
        if self._head_pass is not None:
            head: Any = [p.grad for p in self.model.heads[self.task].parameters()]
            torch._foreach_mul_(head, self._head_pass)

    def end_task(self, feed: Feed) -> None:
        early = self.importance_epoch and int(self.epochs) > self.importance_epoch
        self.accumulate(dict(self.early) if early else self.measured(feed))
