"""The inner step: forward, backward, gradient edits, clip, optimiser, restore. No host round trip on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import Parameter, signature
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.data.order import Order
from hatrack.errors import HatrackError
from hatrack.learn.groups import GROUPS, Groups, beside, grouped
from hatrack.learn.machine.cpu.mode import fast
from hatrack.learn.machine.parallel import process_group
from hatrack.learn.refusals import refuse_unfit_optimizer
from hatrack.masks.lock import Lock, hooked, watched
from hatrack.methods.base import Method
from hatrack.nets.model import Model

OptimizerFactory: TypeAlias = Callable[[Groups], Optimizer]
Clip: TypeAlias = Callable[[Sequence[Tensor], float], None]
NO_MODE = nullcontext()


def clip(gradients: Sequence[Tensor], limit: float) -> None:
    """Scale gradients so that their common norm is at most `limit`, without asking a device for a number.

    On a CPU, where a number costs nothing, the scaling is left out when there is nothing to scale.
    """
    everything: Any = list(gradients)
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(everything)))
    if norm.device.type == "cpu" and bool(norm <= limit):
        return
    torch._foreach_mul_(everything, _shrinkage(norm, limit))


def clip_traced(gradients: Sequence[Tensor], limit: float) -> None:
    """Do the same in single operations and for any batch, as a compiler likes it: it fuses them with what is around."""
    squares = [g.square().sum() for g in gradients]
    scale = _shrinkage(torch.sqrt(sum(squares[1:], start=squares[0])), limit)
    for gradient in gradients:
        gradient.mul_(scale)


def _shrinkage(norm: Tensor, limit: float) -> Tensor:
    # A norm that is not finite scales nothing: zeros, those of locked entries above all, must stay zeros.
    return torch.where(torch.isfinite(norm), torch.clamp(limit / (norm + 1e-6), max=1.0), 1.0)


class Stepper:
    """Training steps of one phase of a task under one optimiser."""

    def __init__(self, method: Method, optimizer: Optimizer) -> None:
        self.method = method
        self.optimizer = optimizer
        self.gates = beside(method, optimizer)
        self.optimizers = [optimizer] if self.gates is None else [optimizer, self.gates]
        self.loss = torch.zeros((), device=method.model.device)  # the sum over the steps of an epoch
        self.lr = torch.zeros((), device=method.model.device)  # for steps that are recorded, which know no new numbers
        self.by_tensor = False  # plain SGD takes its rate from there
        self.group = process_group()
        self._loss = method.loss if self.group is None else self.group.spread(method.loss, method.trainable())
        self._evaluates = evaluates(optimizer)
        self._mode = fast(method.model.device)
        self.parameters = [p for each in self.optimizers for group in each.param_groups for p in group["params"]]
        if method.lock is not None:
            method.lock.trust(optimizer)

    def begin_epoch(self, feed: Feed | Order, size: int) -> int:
        """Switch to training, set the clock, and return the number of steps that batches of `size` make."""
        self.method.begin_epoch()
        model = self.method.model
        if self.method.lock is not None and hooked([model.net, *model.heads], self.parameters):
            self.method.lock.trust(None)
        self._switch("train")
        steps = count_steps(self.method.model, feed, size)
        self.method.clock.start(steps)
        self.loss.zero_()
        self.lr.fill_(float(self.optimizer.param_groups[0]["lr"]))
        return steps

    def step(self, batch: Batch) -> None:
        """Move the parameters by one batch."""
        if self._evaluates:
            losses: list[Tensor] = []

            def closure() -> Any:
                losses.append(self.evaluate(batch, mode=self._mode))
                return losses[-1]

            self.optimizer.step(closure)
            self._move_gates()
            self.settle(losses[0])
        else:
            self.move(self.evaluate(batch, mode=self._mode))

    def evaluate(self, batch: Batch, clip: Clip = clip, mode: AbstractContextManager[object] = NO_MODE) -> Tensor:
        """Leave edited and clipped gradients behind, and return the loss."""
        for parameter in self.parameters:
            parameter.grad = None
        with self.method.model.precision.products(), without_gradients(self.method.lock):
            with mode:
                loss = self._loss(batch)
            loss.backward()
            self.method.after_backward()
        clip([p.grad for p in self.parameters if p.grad is not None], self.method.clip)
        whole = loss.detach()
        if self.group is not None:
            self.group.average([whole := whole.clone()])
        return whole

    def end_epoch(self) -> None:
        """Leave the weights that count behind, and running statistics that are the same in all processes."""
        self._switch("eval")
        if self.group is not None:
            model = self.method.model
            own = [t for t in model.private[self.method.task].values() if not t.requires_grad]
            self.group.average([*model.buffers().values(), *own])

    def _switch(self, mode: str) -> None:
        """Let the optimiser bring in the weights it trains or those that count; a schedule-free one has both."""
        switch = getattr(self.optimizer, mode, None)
        if callable(switch):
            switch()
        self.hold()

    def hold(self) -> None:
        """Give locked entries their bits back, whoever wrote to them: at the end of an epoch all must be in place."""
        if self.method.lock is not None:
            self.method.lock.restore()

    def move(self, loss: Tensor) -> None:
        """Let the optimiser follow the gradients that `evaluate` left behind."""
        if self.by_tensor:
            self.descend()
        else:
            self.optimizer.step()
        self._move_gates()
        self.settle(loss)

    def _move_gates(self) -> None:
        """Let gates that have a rule of their own follow the gradients of the last evaluation."""
        if self.gates is not None:
            self.gates.step()

    @torch.no_grad()
    def descend(self) -> None:
        """Do what plain SGD does, θ ← θ − lr·g, with lr as a tensor and in single operations (see `clip_traced`)."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.sub_(self.lr * parameter.grad)
                parameter.grad = None

    def settle(self, loss: Tensor) -> None:
        """End a step whose parameters have moved."""
        self.method.after_step()
        self.loss.add_(loss.detach())

    def set_lr(self, ratio: float) -> None:
        """Multiply every group's learning rate."""
        for group in [group for optimizer in self.optimizers for group in optimizer.param_groups]:
            group["lr"] = group["lr"] * ratio  # not in place: a tensor may be shared by groups, and be the caller's


def count_steps(model: Model, feed: Feed | Order, size: int) -> int:
    """Return the steps of an epoch in batches of `size`, for the network in the mode in which it is trained.

    A batch norm that sees one value a channel and sample has nothing to normalise by where a batch holds one sample.
    Such a last batch is left out; the next epoch, shuffled anew, leaves out another sample.
    """
    steps = feed.steps(size)
    group = process_group()
    least = 2 if group is None else 2 * group.world_size  # two for each process's share
    if len(feed) - (steps - 1) * size >= least or model.trains_on_one():
        return steps
    if min(size, len(feed)) < least:
        got = f"a batch size of {size}; raise it" if size < least else f"a task of {len(feed)} to train on; add some"
        where = "" if group is None else f" ({group.world_size} processes)"
        raise HatrackError(
            f"the batch norm of {type(model.net).__name__} needs {least} samples a step or more{where}, got {got}."
        )
    return steps - 1


@contextmanager
def without_gradients(lock: Lock | None) -> Iterator[None]:
    """Ask for no gradient of what is locked as a whole: it would be a product for nothing."""
    whole = [p for p in lock.whole if p.requires_grad] if lock is not None else []
    for parameter in whole:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in whole:
            parameter.requires_grad_(True)


def evaluates(optimizer: Optimizer) -> bool:
    """Whether a step evaluates the loss itself, as often as it likes: it takes a closure that must not be left out."""
    given = signature(optimizer.step).parameters.values()
    return any(p.name == "closure" and p.default is Parameter.empty for p in given)


def plain(optimizer: Optimizer) -> bool:
    """Whether the optimiser does θ ← θ − lr·g and nothing else."""
    extras = ("momentum", "weight_decay", "nesterov", "maximize", "differentiable")
    groups = optimizer.param_groups
    return (
        type(optimizer) is SGD
        and not watched(optimizer)
        and len(groups) == 1
        and not any(groups[0][key] for key in extras)
    )


def build(method: Method, factory: OptimizerFactory | None) -> Optimizer:
    """Return a fresh optimiser over what the method trains: its own over all, or the user's, with the gates or without.

    Gates that it leaves out are moved beside it (see groups.py).
    """
    trainable = method.trainable()
    if factory is None:
        return method.optimizer(list(trainable.values()))
    groups = grouped(method)
    try:
        made = factory(groups)
    except ValueError as error:  # torch's own refusals
        empty = ", ".join(name for name in GROUPS if not groups[name]) or "none"
        said = (str(error).splitlines() or ["ValueError"])[0]
        raise HatrackError(
            f"the optimizer's callable failed: {said}; it is given parameters in groups (empty here: {empty})."
        ) from error
    refuse_unfit_optimizer(made, trainable, method.gates())
    return made
