"""The inner step: forward, backward, gradient edits, clip, optimiser, restore. No host round trip on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.methods.base import Method

OptimizerFactory: TypeAlias = Callable[[Sequence[Tensor]], Optimizer]


def clip(gradients: Sequence[Tensor], limit: float) -> None:
    """Scale gradients so that their common norm is at most `limit`, without asking the device for a number.

    On a CPU, where a number costs nothing, the scaling is left out when there is nothing to scale.
    """
    everything: Any = list(gradients)
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(everything)))
    if norm.device.type == "cpu" and bool(norm <= limit):
        return
    # A norm that is not finite scales nothing: zeros, those of locked entries above all, must stay zeros.
    scale = torch.where(torch.isfinite(norm), torch.clamp(limit / (norm + 1e-6), max=1.0), 1.0)
    torch._foreach_mul_(everything, scale)


class Stepper:
    """Runs training steps of one task under one optimiser."""

    def __init__(self, method: Method, optimizer: Optimizer) -> None:
        self.method = method
        self.optimizer = optimizer
        self.loss = torch.zeros((), device=method.model.device)
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if method.lock is not None:
            method.lock.trust(optimizer)

    def epoch(self, batches: Iterable[Batch], steps: int) -> float:
        """Run one epoch and return its mean training loss: the only number that leaves the device."""
        self.method.train_mode()
        self.method.clock.start(steps)
        self.loss.zero_()
        for batch in batches:
            self.step(batch)
            self.method.clock.advance()
        return float(self.loss) / steps

    def step(self, batch: Batch) -> None:
        """Move the parameters by one batch."""
        if isinstance(self.optimizer, LBFGS):  # evaluates the loss as often as its line search likes
            loss: Any = self.optimizer.step(lambda: self._evaluate(batch))
        else:
            loss = self._evaluate(batch)
            self.optimizer.step()
        self.method.after_step()
        self.loss.add_(loss.detach())

    def _evaluate(self, batch: Batch) -> Tensor:
        """Leave edited and clipped gradients behind, and return the loss."""
        self.optimizer.zero_grad()
        loss = self.method.loss(batch)
        loss.backward()
        self.method.after_backward()
        clip([p.grad for p in self._parameters if p.grad is not None], self.method.clip)
        return loss

    def set_lr(self, ratio: float) -> None:
        """Multiply every group's learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] *= ratio


def build(method: Method, factory: OptimizerFactory | None) -> Optimizer:
    """Return a fresh optimiser over exactly what the method trains: the user's, or the method's own."""
    parameters = list(method.trainable().values())
    if factory is None:
        return method.optimizer(parameters)
    made = factory(parameters)
    if not isinstance(made, Optimizer):
        raise HatrackError(
            f"optimizer must be a callable that takes parameters and returns a torch optimiser, "
            f"got {type(made).__name__} from it."
        )
    return made
