"""The inner step: forward, backward, gradient edits, clip, optimiser, restore. No host round trip on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from hatrack.data.feed import Batch
from hatrack.errors import HatrackError
from hatrack.learn.parallel import Crew, crew
from hatrack.methods.base import Method

OptimizerFactory: TypeAlias = Callable[[Sequence[Tensor]], Optimizer]


def clip(gradients: Sequence[Tensor], limit: float, ask: bool = True) -> None:
    """Scale gradients so that their common norm is at most `limit`, without asking the device for a number.

    On a CPU, where a number costs nothing, the scaling is left out when there is nothing to scale; `ask=False` keeps
    to the one path that holds for every batch, which is what a step that is traced needs.
    """
    everything: Any = list(gradients)
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(everything)))
    if ask and norm.device.type == "cpu" and bool(norm <= limit):
        return
    # A norm that is not finite scales nothing: zeros, those of locked entries above all, must stay zeros.
    scale = torch.where(torch.isfinite(norm), torch.clamp(limit / (norm + 1e-6), max=1.0), 1.0)
    torch._foreach_mul_(everything, scale)


class Stepper:
    """Training steps of one phase of a task under one optimiser."""

    def __init__(self, method: Method, optimizer: Optimizer) -> None:
        self.method = method
        self.optimizer = optimizer
        self.loss = torch.zeros((), device=method.model.device)  # the sum over the steps of an epoch
        self.crew = crew()
        if self.crew is not None and not method.shares_batches:
            raise HatrackError(
                f"{method.name} cannot be spread over several processes: its loss is not a mean over samples; start "
                f"one process."
            )
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if method.lock is not None:
            method.lock.trust(optimizer)

    def begin_epoch(self, steps: int) -> None:
        """Switch to training and set the clock."""
        self.method.train_mode()
        self.method.clock.start(steps)
        self.loss.zero_()

    def step(self, batch: Batch) -> None:
        """Move the parameters by one batch."""
        if isinstance(self.optimizer, LBFGS):  # evaluates the loss as often as its line search likes
            loss: Any = self.optimizer.step(lambda: self.evaluate(batch))
            self._settle(loss)
        else:
            self.move(self.evaluate(batch))

    def evaluate(self, batch: Batch, ask: bool = True) -> Tensor:
        """Leave edited and clipped gradients behind, and return the loss."""
        weight = 1.0
        if self.crew is not None:
            batch, weight = self.crew.part(batch)
        for parameter in self.parameters:
            parameter.grad = None
        with self.method.model.precision.products():
            loss = self.method.loss(batch)
            if self.crew is None:
                loss.backward()
            else:
                loss = self._sum(loss, weight, self.crew)
            self.method.after_backward()
        clip([p.grad for p in self.parameters if p.grad is not None], self.method.clip, ask)
        return loss.detach()

    def _sum(self, loss: Tensor, weight: float, crew: Crew) -> Tensor:
        """Backward on this process's share; leave the gradients of the whole batch behind and return its loss."""
        loss = loss * weight
        loss.backward()
        whole = loss.detach().clone()
        crew.sum([whole, *(p.grad for p in self.parameters if p.grad is not None)])
        return whole

    def end_epoch(self) -> None:
        """Make running statistics the same in all processes."""
        if self.crew is not None:
            model = self.method.model
            own = [t for t in model.private[self.method.task].values() if not t.requires_grad]
            self.crew.average([*model.net.buffers(), *own])

    def move(self, loss: Tensor) -> None:
        """Let the optimiser follow the gradients that `evaluate` left behind."""
        self.optimizer.step()
        self._settle(loss)

    def _settle(self, loss: Tensor) -> None:
        self.method.after_step()
        self.loss.add_(loss.detach())

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
