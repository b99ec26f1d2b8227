"""What a method is: a few verbs around the one training loop, its hyper-parameters, and what it holds.

A method knows its model (network, heads, unit map) and the clock; it knows nothing of files, progress bars or
other methods. The learner calls the verbs in this order:

    attach → for each task: begin_task → for each phase: begin_phase → for each epoch: begin_epoch → (loss →
    after_backward → after_step)*; then end_phase; then end_task

What it holds is declared once, as fields (`parts/declared.py`), by itself or by the parts that it is composed of. A run
may be killed and taken up again after any epoch: then `begin_task` is called again on a network that stands in the
middle of the task, what is in progress gets its saved values, then comes `begin_phase`, and then all that moves gets
its saved values. So what a method needs of the network as it was before the task is kept by `end_task`, not looked up
in `begin_task`. A task may also fail anywhere: then all that the method holds is put back where it was, but of tensors
only what is kept gets its old values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.errors import HatrackError
from hatrack.masks.lock import Lock
from hatrack.masks.widen import Places
from hatrack.measure.histogram import LogHistogram
from hatrack.methods.hyper import Documented, check, hyper
from hatrack.methods.parts.declared import Holder
from hatrack.methods.parts.norms import private_norms
from hatrack.nets.model import Model
from hatrack.targets import Target


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


class ScheduleState(NamedTuple):
    """Where the schedule of a phase stands: learning rate, lowest validation loss so far, and epochs since."""

    lr: float
    lowest: float
    since: int


@dataclass
class Method(Holder):
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
    updatable: ClassVar[bool] = False  # a finished task can go on learning: see `seen`, `go_on_from`, `take_back`
    settles: ClassVar[bool] = False  # what is trained is settled when the method gets to know the model
    targets: ClassVar[tuple[str, ...] | None] = None  # names of those that it can learn; None: any
    distils: ClassVar[bool] = False  # answers are compared with what the network gave before
    norms: ClassVar[str] = "shared"  # what becomes of batch norm (parts/norms.py), where no setting `norm` says it

    lr: float = hyper(0.05, "learning rate at the start of every task", low=0.0, search=(0.005, 0.5, "log"))
    lr_factor: float = hyper(3.0, "the learning rate is divided by this when the validation loss stalls", low=1.0)
    lr_patience: int = hyper(5, "epochs without a lower validation loss before that", low=1)
    lr_min: float = hyper(1e-4, "training on a task stops when the learning rate falls below", low=0.0)
    clip: float = hyper(10_000.0, "norm at which gradients are clipped", low=0.0)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = Documented(cls.__doc__ or "")  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check(self)

    # ---- the verbs

    def attach(self, model: Model) -> None:
        """Get to know the model, and put on the parts. Called once, before the first task or a load."""
        self.model = model
        self.clock = Clock(model.device)
        self.task = -1  # none yet; a loaded learner stands behind its last task
        self.lock: Lock | None = None  # what protects old tasks, for methods that have such a thing
        self._from_the_start = set(model.parameters())
        self.declare()

    def private(self) -> Mapping[str, Tensor]:
        """Return the tensors of the network that the coming task keeps for itself, with their values at its start."""
        return private_norms(self.model, self._norm)

    @property
    def _norm(self) -> str:
        return str(getattr(self, "norm", self.norms))

    @property
    def most_tasks(self) -> int:
        """How many tasks are kept at most, by releasing the oldest one before another begins; 0: all."""
        return int(getattr(self, "keep_tasks", 0))

    def remembered(self) -> float:
        """Return the share of a finished task's samples that is to be at hand later (see `needs_old_data`)."""
        return 1.0

    def shared(self) -> dict[str, Tensor]:
        """Return the parameters that tasks share, by name."""
        own = self.own()
        return {name: p for name, p in self.model.parameters().items() if name not in own}

    def own(self) -> Mapping[str, Tensor]:
        """Return what a task keeps for itself, under the same names each: the current one, or the last there is."""
        there = self.model.remaining
        if not there:
            return self.private()
        return self.model.private[self.task if self.task in there else there[-1]]

    @property
    def first(self) -> bool:
        """Whether no task is there before the current one: it is the first, or all others were released."""
        return not any(task < self.task for task in self.model.remaining)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        """Prepare for task number `task`, whose training samples come from `feed`; its head exists already."""
        new = sorted(self.model.parameters().keys() - self._from_the_start)
        if new and self.settles:
            raise HatrackError(
                f"{new[0]} did not ask for gradients when the learner was made and does now; {self.name} settles at "
                f"the start what is trained: choose it before the learner is made."
            )
        self.task = task

    @property
    def phased(self) -> bool:
        """Whether something is done between phases of a task: only a loop that knows of them will do."""
        kind = type(self)
        return kind.begin_phase is not Method.begin_phase or kind.end_phase is not Method.end_phase

    def phases(self, epochs: int) -> Sequence[int]:
        """Return how many epochs at most each phase of the task may take, given the number the user allows."""
        return (epochs,)

    def begin_phase(self, phase: int) -> ScheduleState | None:
        """Prepare for a phase of the task; return where its schedule goes on, None for a fresh one."""
        return None

    def begin_epoch(self) -> None:
        """Prepare for an epoch: switch the network to training."""
        self.model.net.train()
        if self._norm == "frozen" and not self.first:
            self.model.freeze_statistics()

    def end_phase(self, phase: int, feed: Feed, state: ScheduleState) -> None:
        """Draw the conclusions of a phase: its best epoch's weights are back in place."""

    @property
    def unjudged(self) -> int:
        """The first steps of a phase in which validation is no judge: the last epoch counts as the best so far."""
        return 0

    def trainable(self) -> dict[str, Tensor]:
        """Return what the optimiser moves in this task, by name."""
        own = self.model.private[self.task]
        shared = {f"net/{n}": p for n, p in self.model.parameters().items() if n not in own}
        private = {f"private/{n}": own[n] for n in self.model.parameters() if n in own}
        head = self.model.heads[self.task]
        more = {name: tensor for part in self.parts for name, tensor in part.trainable().items()}
        return {**shared, **private, "head/weight": head.weight, "head/bias": head.bias, **more}

    def gates(self) -> Mapping[str, Tensor]:
        """Return what `trainable` may hold that decides which parts a task uses: embeddings, scores; same names."""
        return {}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        """Return the method's own optimiser: the papers' plain SGD, in its fused form.

        Beside a user's it moves the gates alone.
        """
        return torch.optim.SGD(parameters, lr=self.lr, fused=True)

    def forward(self, x: Any) -> Tensor:
        """Return the head's output for a batch that is trained on."""
        return self.model.logits(x, self.task)

    def penalty(self) -> Tensor | None:
        """Return what training adds to the loss of the task, after `forward`; None where there is nothing."""
        found = [penalty for part in self.parts if (penalty := part.penalty()) is not None]
        return sum(found[1:], start=found[0]) if found else None

    def loss(self, batch: Batch) -> Tensor:
        """Return the training loss of a batch: that of the task and the penalty.

        A method that replaces it needs a loop that hands in whole batches: `Hats`, which is for any loop, refuses it.
        """
        loss = self.task_loss(self.forward(batch.x), batch)
        penalty = self.penalty()
        return loss if penalty is None else loss + penalty

    def valid_loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        """Return the mean loss by which the schedule and the best epoch are chosen."""
        return self.penalised(self.model.targets[task].trained(logits, y))

    @property
    def target(self) -> Target:
        """What the task in progress predicts."""
        return self.model.targets[self.task]

    def task_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the loss of the task's target: cross-entropy for classes."""
        return self.target.trained(logits, batch.y, batch.weights)

    def penalised(self, loss: Tensor) -> Tensor:
        """Return a loss with the terms that the parts add to it."""
        for penalty in [part.penalty() for part in self.parts]:
            loss = loss if penalty is None else loss + penalty
        return loss

    def after_backward(self) -> None:
        """Edit the gradients (before clipping): parts first, then the lock."""
        for part in self.parts:
            part.on_gradients()
        if self.lock is not None:
            self.lock.on_gradients()

    def after_step(self) -> None:
        """Put right what the optimiser's step may have moved."""
        if self.lock is not None:
            self.lock.after_step()
        for part in self.parts:
            part.after_step()

    def adopt(self, gates: Tensor | None = None) -> None:
        """Take the network as it is for what the first task has learned, or what boolean `gates` leave open of it."""

    def worth(self, batches: Iterator[Any]) -> Tensor | None:
        """Return what each gate that `adopt` takes is worth to the network's answers; None: nothing can be closed.

        `batches`: prepared inputs of the task, without end.
        """
        return None

    def grown(self, places: Places, generator: torch.Generator) -> None:
        """Bring what all tasks share to the width that the network has got; what is a task's own keeps its width.

        Only called between two tasks, and undone by `load_state` of what `state` was before.
        """
        raise HatrackError(f"{self.name} cannot learn on in a network that grows; hat and pmask can, for example.")

    def end_task(self, feed: Feed) -> None:
        """Consolidate: the best epoch's weights are back in place, the training samples at hand once more."""

    def finish(self, feed: Feed) -> None:
        """End the task: `end_task`, and what no method may forget."""
        self.end_task(feed)
        if self._norm == "task":
            self.model.keep_moved_buffers(self.task)
        self.refuse_undeclared()

    def refuse_undeclared(self) -> None:
        """Refuse tensors that nobody would save, put back or bring to agree."""
        model = self.model
        own = [tensor for tensors in model.private for tensor in tensors.values()]
        heads = [p for head in model.heads for p in head.parameters()]
        trained = self.trainable().values() if self.task >= 0 else ()
        known = {id(t) for t in (*model.tensors().values(), *model.initial.values(), *own, *heads, *trained)}
        lost = next(self.undeclared(known), None)
        if lost is not None:
            raise HatrackError(
                f"{type(self).__name__}.{lost} holds a tensor that is neither trained nor declared, and would be lost "
                f"when a run is taken up again: declare it as a field, kept(…), progress(…), along(…) or scratch()."
            )

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return the logits of prepared inputs for a task, learned or being learned."""
        return self.model.logits(x, task)

    # ---- finished tasks

    def release(self, task: int) -> None:
        """Forget what a finished task has left, and what is left of training: as after a load, without the task.

        Its head and its own tensors are gone already. What is kept of several tasks together must be put right here.
        """
        super().release(task)
        self.task, self.lock = -1, None

    def unreleasable(self) -> str | None:
        """Return why no task can be released, None where it can be: then `use` must say all that a task relies on."""
        return None if self.promises() else "it does not keep apart what each task has changed"

    def freed(self, drawn: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what shared entries are to hold that no task uses any more; `drawn`: as the network's own at first."""
        return drawn

    def seen(self, task: int) -> dict[str, Tensor]:
        """Return copies of the shared parameters as a finished task is answered by them, for a version that is kept."""
        return {name: p.detach().clone() for name, p in self.shared().items()}

    def go_on_from(self, task: int) -> None:
        """Let the task that begins start with what an older version of it has left in the method."""

    def take_back(self, task: int, new: int) -> None:
        """Let an older version have again what it had before version `new`, which will be released."""

    def promises(self) -> bool:
        """Return whether, with these settings, finished tasks cannot change at all."""
        return self.guarantee

    def use(self, task: int) -> Mapping[str, Tensor] | None:
        """Return how much a finished task uses each entry of the shared parameters, 0 to 1, in forward order.

        What it uses at all must never change again: that is the promise `verify` holds a method to. None without one.
        """
        return None

    def use_in_state(self, task: int) -> Mapping[str, tuple[str, str, int]]:
        """Return where `state` says already which entries of a parameter a finished task uses, by parameter.

        As ("bits", name, first bit), of packed bits, or ("upto", name, n), of numbers from 1 to n; see
        learn/proof/relied.py.
        """
        return {}

    def built_on(self, task: int) -> Sequence[int]:
        """Return the earlier tasks whose own tensors a finished task is answered with as well."""
        return ()

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

    def learned_besides(self, tasks: int) -> int:
        """Return how many parameters training moves for so many tasks besides what answers are computed with.

        Such are masks, an entry a task; less what answers are computed with and no training moves.
        """
        return 0

    def facts(self) -> Mapping[str, float | None]:
        """Return further figures of the task just learned, by name, for the record."""
        return {}

    def histograms(self) -> Mapping[str, LogHistogram]:
        """Return how what the task just learned found significant is spread, layer by layer, for the record."""
        return {}
