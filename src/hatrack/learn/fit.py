"""Fitting one task: epochs, validation, the schedule, the best epoch. Can be saved and taken up again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.errors import DivergenceWarning, HatrackError
from hatrack.learn.capacity import total_capacity
from hatrack.learn.machine.cpu.mode import fast
from hatrack.learn.machine.engine import Engine
from hatrack.learn.plain_state import numbers_of, restore, tensors_of
from hatrack.learn.schedule import Following, Scheduler, Size, begin
from hatrack.learn.scoring import Scoring
from hatrack.learn.seeds import generator, noise
from hatrack.learn.step import OptimizerFactory, Stepper, build, count_steps
from hatrack.learn.training_state import copied, in_progress, put_back, training_state
from hatrack.methods.base import Method, ScheduleState
from hatrack.targets import Target

# Values that a batch of evaluation holds: enough to keep a device busy, few enough for its activations to stay small.
EVALUATION_VALUES = {"cpu": 2**20, "cuda": 2**24}
EVALUATION_BATCH = {"cpu": 1000, "cuda": 8000}  # samples at most


@dataclass(frozen=True)
class Epoch:
    """What one finished epoch gives to a listener."""

    task: int
    name: str
    phase: int
    epoch: int
    epochs: int
    train_loss: float
    valid_loss: float
    valid_accuracy: float
    lr: float
    s: float | None
    capacity: float | None
    best: bool
    score: str = "accuracy"  # what `valid_accuracy` is


@dataclass(frozen=True)
class Phase:
    """A phase of a task: its number, its epochs at most, those run in earlier phases, those at most in later ones."""

    number: int
    epochs: int
    before: int
    after: int


class Fit:
    """The training of one phase of a task in progress."""

    def __init__(
        self,
        method: Method,
        factory: OptimizerFactory | None,
        phase: Phase,
        state: ScheduleState | None,
        train: Feed,
        size: int,
        seed: int,
        engine: str = "eager",
        scheduler: Scheduler = "patience",
    ) -> None:
        self.method = method
        self.phase = phase
        self.seed = seed
        self.state = training_state(method)
        self.stepper = Stepper(method, build(method, factory))
        self.lr = float(self.stepper.optimizer.param_groups[0]["lr"])  # at the start of the epoch
        so_far = (state.lowest, state.since) if state is not None else (inf, 0)
        length = Size(phase.epochs, lambda: phase.epochs * self._steps(train, size))
        self.schedule = begin(scheduler, self.stepper, length, self.lr, so_far)
        each = self.schedule.end_step if isinstance(self.schedule, Following) and self.schedule.by_step else None
        self.engine = Engine(engine, self.stepper, train, size, each)
        if self.schedule.over and phase.epochs and phase.number == 0:
            raise HatrackError(
                f"the learning rate starts at {self.lr:g}, below lr_min {method.lr_min:g}, at which training stops: "
                f"nothing would be learned; lower lr_min of {method.name} or raise the learning rate."
                if scheduler == "patience"
                else "the learning rate starts at 0, and nothing would be learned; raise it."
            )
        self.epoch = 0  # the last one that is over
        self.best_epoch = 0
        self.best = self._snapshot()
        self._diverged = False

    @property
    def schedule_state(self) -> ScheduleState:
        """Where the schedule stands."""
        return ScheduleState(self.schedule.start, self.schedule.best, self.schedule.stalled)

    @property
    def over(self) -> bool:
        """Whether no further epoch is to be run."""
        return self.epoch >= self.phase.epochs or self.schedule.over

    def _steps(self, train: Feed, size: int) -> int:
        """Return the steps of an epoch, counted in the modes in which the network is trained."""
        modes = [(module, module.training) for module in self.method.model.net.modules()]
        Method.begin_epoch(self.method)
        first = generator(self.seed, "shuffle", self.method.task, self.phase.number, 1)
        steps = count_steps(self.method.model, train.order(first), size)  # a sampler draws as many as it likes
        for module, training in modes:
            module.training = training
        return steps

    def begin_epoch(self) -> None:
        """Get ready for the steps of the next epoch."""
        self.lr = self.schedule.lr
        order = generator(self.seed, "shuffle", self.method.task, self.phase.number, self.epoch + 1)
        with self.method.model.turn:
            self.engine.begin_epoch(order)

    def noise(self) -> AbstractContextManager[None]:
        """Draw what the next epoch draws (dropout) from a stream of its own."""
        where = self.method.task, self.phase.number, self.epoch + 1
        return noise(self.seed, "noise", *where, device=self.method.model.device)

    def end_epoch(self, name: str, valid: Mapping[int, Feed]) -> Epoch:
        """Validate, let the schedule draw its conclusions, and keep the best epoch, or go back to it after numbers
        that are not finite.
        """
        with self.method.model.turn:
            self.stepper.end_epoch()
        train_loss = float(self.stepper.loss) / self.engine.steps
        valid_loss, valid_accuracy = self._agreed(validate(self.method, valid, name))
        with self.method.model.turn:
            self.stepper.hold()  # hooks also run when the network is evaluated
        self.epoch += 1
        before, improved = self.schedule.lr, False
        finite = isfinite(train_loss) and isfinite(valid_loss)
        if finite:
            if self.epoch * self.engine.steps <= self.method.unjudged:
                self.schedule.best = inf
            improved = self.schedule.record(valid_loss)
        else:
            with self.method.model.turn:
                self._start_over()
        if improved:
            self.best, self.best_epoch = self._snapshot(), self.epoch
        if isinstance(self.schedule, Following):
            self.schedule.end_epoch(valid_loss if finite else inf)
        elif self.schedule.lr != before:
            self.stepper.set_lr(self.schedule.lr / before)
        if not finite:
            self._tell_diverged(name, self.phase.before + self.epoch)
        with self.method.model.turn:  # whoever asks a finished task puts other tensors into the network
            capacity = total_capacity(self.method)
        return Epoch(
            task=self.method.task,
            name=name,
            phase=self.phase.number,
            epoch=self.phase.before + self.epoch,
            epochs=self.phase.before + self.phase.epochs + self.phase.after,
            train_loss=train_loss,
            valid_loss=valid_loss,
            valid_accuracy=valid_accuracy,
            lr=self.lr,
            s=getattr(self.method, "s_max", None),  # gates are annealed within an epoch
            capacity=capacity,
            best=improved,
            score=self.method.target.judged().score,
        )

    def _agreed(self, figures: tuple[float, float]) -> tuple[float, float]:
        """Return the first process's figures where there are several: all must stop at the same epoch."""
        if self.stepper.group is None:
            return figures
        numbers = torch.tensor(figures, dtype=torch.float64)
        self.stepper.group.broadcast([numbers], self.method.model.device)
        return float(numbers[0]), float(numbers[1])

    def _snapshot(self) -> dict[str, Tensor]:
        return copied({**self.state, **in_progress(self.method)})

    def restore(self) -> None:
        """Put the best epoch's weights back."""
        put_back(self.state, self.best)
        self.stepper.hold()
        if self.method.lock is not None:
            self.method.lock.refuse_lost(dict(self.method.model.net.named_parameters()))

    def _start_over(self) -> None:
        """Recover from numbers that are not finite: back to the best epoch, with a smaller step and a new optimiser."""
        self.restore()
        put_back(in_progress(self.method), self.best)
        self.engine.forget_optimizer()
        self.schedule.drop()

    def _tell_diverged(self, name: str, epoch: int) -> None:
        if not self._diverged:  # said once: where one epoch diverges, more may follow
            warnings.warn(
                f"{name!r} diverged in epoch {epoch} at a learning rate of {self.lr:g}: its loss is not finite. "
                f"{self.method.name} goes back to the best epoch so far and on with {self.schedule.lr:g}; start lower.",
                DivergenceWarning,
                stacklevel=3,
            )
        self._diverged = True

    # ---- saving and taking up again

    def numbers(self) -> dict[str, Any]:
        """Return the state that is not tensors."""
        gates = self.stepper.gates
        return {
            "phase": self.phase.number,
            "before": self.phase.before,
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "scheduler": self.schedule.name,
            "schedule": self.schedule.state(),
            "optimizer": numbers_of(self.stepper.optimizer),
            **({} if gates is None else {"gates": numbers_of(gates)}),
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that move, and those of the optimisers."""
        self.stepper.hold()  # on_epoch may have written to what is now saved
        held = tensors_of(self.stepper.optimizer, "optimizer")
        if self.stepper.gates is not None:
            held |= tensors_of(self.stepper.gates, "gates")
        return {**{f"moving/{name}": t for name, t in self.state.items()}, **in_progress(self.method), **held}

    def load(self, numbers: dict[str, Any], tensors: dict[str, Tensor], best: dict[str, Tensor]) -> None:
        """Take up a saved state."""
        mine = type(self.stepper.optimizer).__name__
        theirs = numbers["optimizer"].get("name", mine)
        if mine != theirs:
            raise HatrackError(
                f"the task was interrupted under {theirs}, and now there is {mine}; load the learner with the "
                f"optimizer=… that makes {theirs}."
            )
        followed = numbers.get("scheduler", "patience")  # version 0.1 knew no other
        if self.schedule.name != followed:
            raise HatrackError(
                f"the task was interrupted under the schedule {followed}, and now there is {self.schedule.name}; load "
                f"the learner with the scheduler=… that makes {followed}."
            )
        gates = self.stepper.gates
        if (gates is not None) != ("gates" in numbers):
            raise HatrackError(
                f"the task was interrupted with gates {'beside' if gates is None else 'in'} {theirs}, and now they are "
                f"{'in' if gates is None else 'beside'} it (docs/optimisers.md); load the learner with the optimizer=… "
                f"of before, or give the task up with learner.abandon()."
            )
        self.epoch, self.best_epoch = numbers["epoch"], numbers["best_epoch"]
        put_back({f"moving/{name}": t for name, t in self.state.items()}, tensors)
        put_back(in_progress(self.method), tensors)
        self.best = {name: tensor.to(self.method.model.device) for name, tensor in best.items()}
        restore(self.stepper.optimizer, numbers["optimizer"], tensors, "optimizer")
        if gates is not None:
            restore(gates, numbers["gates"], tensors, "gates")
        self.schedule.load(numbers["schedule"])


@dataclass(frozen=True)
class Resume:
    """A saved phase, to be taken up when its task is handed in again."""

    numbers: dict[str, Any]
    tensors: dict[str, Tensor]
    best: dict[str, Tensor]

    @property
    def phase(self) -> int:
        """The phase that was in progress."""
        return int(self.numbers["phase"])

    @property
    def before(self) -> int:
        """The epochs that earlier phases had taken."""
        return int(self.numbers["before"])

    def refill(self, method: Method) -> None:
        """Give what the method adds up its saved values, for `begin_phase` to look at."""
        put_back({n: t for n, t in in_progress(method).items() if n in self.tensors}, self.tensors)

    def fill(self, fit: Fit) -> None:
        """Bring a new fit to where the saved one stood."""
        fit.load(self.numbers, self.tensors, self.best)


@torch.no_grad()
def validate(method: Method, feeds: Mapping[int, Feed], name: str | None = None) -> tuple[float, float]:
    """Return the mean loss and the mean score on the samples of several tasks, each answered as its own.

    The score goes over the tasks that are scored as the last one is.
    """
    with method.model.turn:
        method.model.net.eval()
    loss = torch.zeros((), device=method.model.device)
    scored, counted = 0.0, 0
    judged = method.model.targets[max(feeds)].judged()
    for task, feed in feeds.items():
        target = method.model.targets[task]
        score = Scoring(target, name)
        for batch in feed.batches(evaluation_batch(feed, method.model.device)):
            with method.model.turn, fast(method.model.device):
                logits = method.predict(batch.x, task)
                loss += method.valid_loss(logits, batch.y, task) * len(batch.y)
            score.add(logits, batch.y)
        if target.judged()[:2] == judged[:2] and isfinite(float(loss)):  # what diverged has no score
            scored, counted = scored + score.figure() * len(feed), counted + len(feed)
    return float(loss) / sum(map(len, feeds.values())), scored / counted if counted else nan


@torch.no_grad()
def test_score(method: Method, feed: Feed, task: int, target: Target, name: str) -> float:
    """Return the score of a task on `feed`."""
    score = Scoring(target, name)
    for batch in feed.batches(evaluation_batch(feed, method.model.device)):
        with method.model.alone(), fast(method.model.device):
            logits = method.predict(batch.x, task)
        score.add(logits, batch.y)
    return score.figure()


def evaluation_batch(feed: Feed, device: torch.device) -> int:
    """Return how many samples a batch of evaluation takes."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    return max(1, min(EVALUATION_BATCH[kind], EVALUATION_VALUES[kind] // feed.sample_size))
