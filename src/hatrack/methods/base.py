"""What a method is: a few verbs around the one training loop, and its hyper-parameters.

A method knows its model (network, heads, unit map) and the clock; it knows nothing of files, progress bars or
other methods. The learner calls the verbs in this order:

    attach → for each task: begin_task → for each phase: begin_phase → for each epoch: begin_epoch → (loss →
    after_backward → after_step)*; then end_phase; then end_task

A run may be killed and taken up again after any epoch. What finished tasks left behind is `state`; what training
itself changes is `trainable`, `along` and `in_progress`. On taking up, `begin_task` is called again on a network that
stands in the middle of the task, then what is `in_progress` gets its saved values, then comes `begin_phase`, and then
all those tensors get their saved values: so what a method needs of the network as it was before the task must be kept
by `end_task`, not looked up in `begin_task`.

A task may also fail anywhere. Then whatever the method holds (attributes, lists, objects of its own) is put back in
its place, and `load_state` gets what `state` returned before: a tensor that is written into, not replaced, and that
finished tasks rely on belongs into `state`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.errors import HatrackError
from hatrack.masks.lock import Lock
from hatrack.methods.hyper import check, hyper
from hatrack.nets.model import Model


class Clock:
    """Where in the epoch we are, as tensors on the device, so that a step needs no host round trip."""

    def __init__(self, device: torch.device) -> None:
        self.step = torch.zeros((), dtype=torch.long, device=device)
        self.last = torch.ones((), device=device)
        self.base = torch.zeros((), device=device)

    def start(self, steps: int) -> None:
        """Begin an epoch of `steps` batches."""
        self.step.zero_()
        self.last.fill_(max(steps - 1, 1))
        self.base.fill_(float(steps == 1))

    def advance(self) -> None:
        """Count one finished step."""
        self.step.add_(1)

    def fraction(self) -> Tensor:
        """(b−1)/(B−1): 0 at the first batch, 1 at the last; 1 when there is only one."""
        return self.base + self.step / self.last


@dataclass
class Method:
    """Base of all methods: plain training of network and head by SGD with the paper's patience schedule."""

    name: ClassVar[str]
    family: ClassVar[str]
    source: ClassVar[str]
    summary: ClassVar[str]
    stores: ClassVar[str]  # what it keeps for a finished task besides its head; P parameters, U units
    guarantee: ClassVar[bool] = False
    needs_old_data: ClassVar[bool] = False
    keeps_samples: ClassVar[bool] = False  # samples of finished tasks stand in what is saved
    trains: ClassVar[bool] = True
    shares_batches: ClassVar[bool] = True  # the loss of a batch is the mean of those of its parts
    masks_grow: ClassVar[bool] = False  # each task takes a part of the network for itself

    lr: float = hyper(0.05, "learning rate at the start of every task", low=0.0, search=(0.005, 0.5, "log"))
    lr_factor: float = hyper(3.0, "the learning rate is divided by this when the validation loss stalls", low=1.0)
    lr_patience: int = hyper(5, "epochs without a lower validation loss before that", low=1)
    lr_min: float = hyper(1e-4, "training on a task stops when the learning rate falls below", low=0.0)
    clip: float = hyper(10_000.0, "norm at which gradients are clipped", low=0.0)

    def __post_init__(self) -> None:
        check(self)

    # ---- the verbs

    def attach(self, model: Model) -> None:
        """Get to know the model. Called once, before the first task or a load."""
        self.model = model
        self.clock = Clock(model.device)
        self.task = -1  # none yet; a loaded learner stands behind its last task
        self.lock: Lock | None = None  # what protects old tasks, for methods that have such a thing
        self._from_the_start = set(model.parameters())

    def private(self) -> Mapping[str, Tensor]:
        """Return the tensors of the network that the coming task keeps for itself, with their values at its start."""
        return {}

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        """Prepare for task number `task`, whose training samples come from `feed`; its head exists already."""
        self.task = task

    def refuse_unfrozen(self) -> None:
        """Refuse parameters that were not trained when the method got to know the model: it keeps nothing of them."""
        new = sorted(self.model.parameters().keys() - self._from_the_start)
        if new:
            raise HatrackError(
                f"{new[0]} did not ask for gradients when the learner was made and does now; {self.name} settles at "
                f"the start what is trained: choose it before the learner is made."
            )

    def remembered(self) -> float:
        """Return the share of a finished task's samples that is to be at hand later (see `needs_old_data`)."""
        return 1.0

    def phases(self, epochs: int) -> Sequence[int]:
        """Return how many epochs at most each phase of the task may take, given the number the user allows."""
        return (epochs,)

    def begin_phase(self, phase: int) -> None:
        """Prepare for a phase of the task; most methods have one only."""

    def patience(self) -> tuple[float, int]:
        """Return from where a phase's schedule counts: the lowest validation loss so far, and the epochs since."""
        return inf, 0

    def note_schedule(self, lr: float, lowest: float, since: int) -> None:
        """Take note of where the schedule stands at the end of a phase, before `end_phase`."""

    def end_phase(self, phase: int, feed: Feed) -> None:
        """Draw the conclusions of a phase: its best epoch's weights are back in place."""

    def begin_epoch(self) -> None:
        """Prepare for an epoch: switch the network to training."""
        self.model.net.train()

    def trainable(self) -> dict[str, Tensor]:
        """Return what the optimiser moves in this task, by name."""
        own = self.model.private[self.task]
        shared = {f"net/{n}": p for n, p in self.model.parameters().items() if n not in own}
        private = {f"private/{n}": own[n] for n in self.model.parameters() if n in own}
        head = self.model.heads[self.task]
        return {**shared, **private, "head/weight": head.weight, "head/bias": head.bias}

    def in_progress(self) -> dict[str, Tensor]:
        """Return further tensors that change while a task is learned, for saving; they are refilled in place."""
        return {}

    def along(self) -> dict[str, Tensor]:
        """Return further tensors that belong to the weights: with the best epoch's weights, theirs come back too."""
        return {}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        """Return the method's own optimiser: the papers' plain SGD, in its fused form."""
        return torch.optim.SGD(parameters, lr=self.lr, fused=True)

    def loss(self, batch: Batch) -> Tensor:
        """Return the training loss of a batch."""
        return cross_entropy(self.model.logits(batch.x, self.task), batch.y)

    def valid_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss by which the schedule and the best epoch are chosen."""
        return cross_entropy(logits, y)

    def after_backward(self) -> None:
        """Edit the gradients (before clipping): apply the lock, if there is one."""
        if self.lock is not None:
            self.lock.on_gradients()

    def after_step(self) -> None:
        """Put right what the optimiser's step may have moved."""
        if self.lock is not None:
            self.lock.after_step()

    def end_task(self, feed: Feed) -> None:
        """Consolidate: the best epoch's weights are back in place, the training samples at hand once more."""

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return the logits of prepared inputs for a task, learned or being learned."""
        return self.model.logits(x, task)

    # ---- what is known about finished tasks

    def promises(self) -> bool:
        """Return whether, with these settings, finished tasks cannot change at all."""
        return self.guarantee

    def use(self, task: int) -> Mapping[str, Tensor] | None:
        """Return how much a finished task uses each entry of the shared parameters, 0 to 1, in forward order.

        What it uses at all must never change again: that is the promise `verify` holds a method to. None without one.
        """
        return None

    def sealed(self, task: int) -> Mapping[str, Tensor]:
        """Return what of `state` a finished task is answered by, for good: what is named "<what>/<its number>…".

        Only asked where a promise is made; `verify` compares it bit by bit.
        """
        return {name: tensor for name, tensor in self.state().items() if name.split("/")[1:2] == [str(task)]}

    def occupied(self) -> Mapping[str, Tensor] | None:
        """Return how much of each shared entry is taken by all tasks so far, the one in progress included."""
        return None

    def unit_gates(self, task: int) -> Tensor | None:
        """Return a finished task's gates over all units; None for methods without unit masks."""
        return None

    def added_parameters(self) -> Sequence[Tensor]:
        """Return what answers are computed with besides network, private copies and heads; masks do not count."""
        return ()

    def facts(self) -> Mapping[str, float | None]:
        """Return further figures of the task just learned, by name, for the record."""
        return {}

    def s_now(self) -> float | None:
        """Return the gate scale at the end of the epoch, for the log."""
        return None

    # ---- memory

    def state(self) -> dict[str, Tensor]:
        """Return what finished tasks left in the method, by name."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` returned."""


def bits(mask: Tensor) -> Tensor:
    """Return a boolean tensor as bytes, the form in which it is stored."""
    return mask.to(torch.uint8)
