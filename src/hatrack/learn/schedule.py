"""Schedules of the learning rate within one phase of a task; every phase of every task starts with a new one.

patience   after `lr_patience` epochs without a strictly lower validation loss lr ← lr/lr_factor; over when lr < lr_min
cosine     lr·[1 + cos(π·e/E)]/2 in epoch e = 0, …, E − 1
onecycle   step by step from lr/25 up to lr in the first 30 % of all steps, and down to lr/250000 by half a cosine each;
           momentum, or Adam's β₁, goes from 0.95 down to 0.85 and back where the optimiser has any
constant   lr
callable   the torch scheduler that it makes of the optimiser, stepped after every epoch, or every step (`ByStep`)

All but patience train every epoch that is allowed. Whatever the schedule, the best epoch on validation counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from torch import Tensor
from torch.optim import Optimizer
from torch.optim import lr_scheduler as torchs
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from hatrack.errors import HatrackError, unknown
from hatrack.learn.plain_state import encoded, filled

if TYPE_CHECKING:
    from hatrack.learn.step import Stepper

SCHEDULERS = {
    "patience": "the rate is divided when the validation loss stalls (lr_factor, lr_patience), down to lr_min",
    "cosine": "half a cosine from the rate down to 0, epoch by epoch; every epoch is trained",
    "onecycle": "up to the rate and down again, step by step (torch's OneCycleLR); every epoch is trained",
    "constant": "the rate as it is; every epoch is trained",
}


@dataclass(frozen=True)
class ByStep:
    """A scheduler that is stepped after every training step, not after every epoch.

    make  (optimizer, steps) → torch scheduler, with the number of steps that the phase has at most
    """

    make: Callable[[Optimizer, int], LRScheduler]

    def __post_init__(self) -> None:
        if not callable(self.make):
            raise HatrackError(
                f"ByStep takes a callable (optimizer, steps) → torch scheduler, got {type(self.make).__name__}."
            )


Scheduler: TypeAlias = str | Callable[[Optimizer], LRScheduler] | ByStep


def resolve_scheduler(given: object) -> Scheduler:
    """Return a name of SCHEDULERS, or what makes a torch scheduler."""
    if isinstance(given, str):
        if given not in SCHEDULERS:
            raise unknown("scheduler", given, SCHEDULERS)
        return given
    if isinstance(given, ByStep) or callable(given):
        return given
    raise HatrackError(
        f"scheduler must be one of {', '.join(SCHEDULERS)}, or a callable optimizer → torch scheduler, such as "
        f"lambda o: torch.optim.lr_scheduler.StepLR(o, 10), got {type(given).__name__}."
    )


@dataclass
class Patience:
    """State of the schedule within one phase of a task; every task starts with a new one.

    After `patience` epochs in a row without a strictly lower validation loss, lr ← lr/factor and the count starts
    again; training is over when lr < minimum.
    """

    lr: float
    factor: float
    patience: int
    minimum: float
    best: float = inf
    stalled: int = 0

    name = "patience"

    @property
    def over(self) -> bool:
        """Whether the learning rate has become too small to go on."""
        return self.lr < self.minimum

    @property
    def start(self) -> float:
        """The rate at which a later phase goes on where this one ends."""
        return self.lr

    def record(self, loss: float) -> bool:
        """Take an epoch's validation loss; return whether it is the best so far."""
        if loss < self.best:
            self.best, self.stalled = loss, 0
            return True
        self.stalled += 1
        if self.stalled >= self.patience:
            self.drop()
        return False

    def drop(self) -> None:
        """Divide the learning rate and start counting again."""
        self.lr /= self.factor
        self.stalled = 0

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def load(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned."""
        vars(self).update(state)


class Size(NamedTuple):
    """How long a phase may last; steps are counted where they are asked for."""

    epochs: int
    steps: Callable[[], int]


class Following:
    """Follows a torch scheduler, and trains every epoch.

    rate of a group   what the scheduler says, times `scale`: 1, divided by the method's lr_factor at every divergence
    of the gates      that of their own rule (see groups.py) times lr/highest, with lr the rate of the first group and
                      highest the `max_lr` of a scheduler that has one, else the rate that the optimiser came with
    """

    def __init__(
        self, given: Scheduler, stepper: Stepper, size: Size, factor: float, so_far: tuple[float, int]
    ) -> None:
        self._stepper, self._factor, self.scale = stepper, factor, 1.0
        for group in self._groups:
            if isinstance(group["lr"], Tensor):  # a scheduler writes into it, and it may be the caller's
                group["lr"] = group["lr"].clone()
        self._own = float(self._groups[0]["lr"])
        self._gates = [] if stepper.gates is None else [float(g["lr"]) for g in stepper.gates.param_groups]
        self.best, self.stalled = so_far
        self.by_step = given == "onecycle" or isinstance(given, ByStep)
        self._wrapped: Any = None
        with self._patched():
            self._scheduler = _made(given, stepper.optimizer, size)
        self.name = given if isinstance(given, str) else type(self._scheduler).__name__ + " by step" * self.by_step
        self._highest = getattr(self._scheduler, "max_lrs", [self._groups[0].get("max_lr", self._own)])[0]
        self._rates = self._read()
        self._spread()

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self._stepper.optimizer.param_groups

    @property
    def lr(self) -> float:
        """The rate of the optimiser's first group."""
        return self._rates[0] * self.scale

    @property
    def start(self) -> float:
        """The rate that a later phase begins with: its schedule is a new one."""
        return self._own * self.scale

    @property
    def over(self) -> bool:
        """Whether there is nothing to train: by a rate of 0 a method leaves a phase out."""
        return self._own == 0

    def record(self, loss: float) -> bool:
        """Take an epoch's validation loss; return whether it is the best so far."""
        improved = loss < self.best
        self.best, self.stalled = (loss, 0) if improved else (self.best, self.stalled + 1)
        return improved

    def drop(self) -> None:
        """Divide all rates from now on."""
        self.scale /= self._factor

    def end_epoch(self, loss: float) -> None:
        """Step a scheduler that goes by epochs; one that looks at the validation loss gets it."""
        if self.by_step:
            self._spread()  # the scale may have changed
        else:
            self._step(*([loss] if isinstance(self._scheduler, ReduceLROnPlateau) else []))

    def end_step(self) -> None:
        """Step a scheduler that goes by steps."""
        self._step()

    def _step(self, *losses: float) -> None:
        if self.scale != 1:  # a scheduler goes on from what it finds
            self._write(self._rates)
        with self._patched():
            try:
                self._scheduler.step(*losses)  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                raise HatrackError(f"the scheduler {self.name} cannot go on: {_first_line(error)}") from error
        self._rates = self._read()
        self._spread()

    def _spread(self) -> None:
        """Bring the scale into the optimiser's rates, and those of the gates and of compiled steps in line."""
        if self.scale != 1:
            self._write([rate * self.scale for rate in self._rates])
        if self._stepper.gates is not None:
            share = self.lr / self._highest if self._highest else 1.0
            for group, rate in zip(self._stepper.gates.param_groups, self._gates, strict=True):
                group["lr"] = rate * share
        self._stepper.lr.fill_(self.lr)

    def _read(self) -> list[float]:
        return [float(group["lr"]) for group in self._groups]

    def _write(self, rates: list[float]) -> None:
        for group, rate in zip(self._groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Let torch find the step that it wraps when a scheduler is made, and nobody else.

        A scheduler warns where it is gone; elsewhere a step that is not the class's own is taken for somebody's code,
        which may write to anything (see masks/lock.py).
        """
        held = vars(self._stepper.optimizer)
        own = held.pop("step", None)
        if self._wrapped is not None:
            held |= {"step": self._wrapped, "_opt_called": True}
        try:
            yield
        finally:
            self._wrapped = held.pop("step", None)
            if own is not None:
                held["step"] = own

    def state(self) -> dict[str, Any]:
        """Return what a fresh schedule of this kind needs to go on from here."""
        numbers = {"scale": self.scale, "rates": self._rates, "best": self.best, "stalled": self.stalled}
        return {**numbers, "scheduler": encoded(self._scheduler.state_dict(), self.name)}

    def load(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned, once the optimiser stands where it stood."""
        self.scale, self._rates = state["scale"], state["rates"]
        self.best, self.stalled = state["best"], state["stalled"]
        self._scheduler.load_state_dict(filled(self._scheduler.state_dict(), state["scheduler"]))


Schedule: TypeAlias = Patience | Following


def begin(given: Scheduler, stepper: Stepper, size: Size, lr: float, so_far: tuple[float, int]) -> Schedule:
    """Return a fresh schedule for an optimiser whose first group has the rate `lr`."""
    method = stepper.method
    if given == "patience":
        return Patience(lr, method.lr_factor, method.lr_patience, method.lr_min, *so_far)
    return Following(given, stepper, size, method.lr_factor, so_far)


def _made(given: Scheduler, optimizer: Optimizer, size: Size) -> LRScheduler:
    """Return the torch scheduler that was asked for."""
    if isinstance(given, str):
        return _NAMED[given](optimizer, size)
    try:
        made = given.make(optimizer, max(1, size.steps())) if isinstance(given, ByStep) else given(optimizer)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise HatrackError(
            f"the scheduler's callable failed: {_first_line(error)}; it is given the optimiser "
            f"({type(optimizer).__name__}; under ByStep also the number of steps) and returns a torch scheduler."
        ) from error
    if not isinstance(made, LRScheduler) or made.optimizer is not optimizer:
        what = "one of another optimiser" if isinstance(made, LRScheduler) else type(made).__name__
        raise HatrackError(
            f"scheduler must be a callable that returns a torch scheduler (torch.optim.lr_scheduler) of the optimiser "
            f"that it is given, got {what} from it."
        )
    if isinstance(given, ByStep) and isinstance(made, ReduceLROnPlateau):
        raise HatrackError(
            f"{type(made).__name__} looks at the validation loss, known after an epoch only; give it without ByStep."
        )
    return made


def _cosine(optimizer: Optimizer, size: Size) -> LRScheduler:
    return torchs.CosineAnnealingLR(optimizer, max(1, size.epochs))


def _onecycle(optimizer: Optimizer, size: Size) -> LRScheduler:
    rates: list[float] = [float(group["lr"]) for group in optimizer.param_groups]
    cycled = any(group.get("momentum") or "betas" in group for group in optimizer.param_groups)
    steps = max(2, size.steps())  # of a single step torch would make the last one
    return torchs.OneCycleLR(optimizer, rates, total_steps=steps, cycle_momentum=cycled)


def _constant(optimizer: Optimizer, size: Size) -> LRScheduler:
    return torchs.LambdaLR(optimizer, lambda _: 1.0)


_NAMED: dict[str, Callable[[Optimizer, Size], LRScheduler]] = {
    "cosine": _cosine,
    "onecycle": _onecycle,
    "constant": _constant,
}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
