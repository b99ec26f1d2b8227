"""What every logger shares: which figures are written, at which step, and to whose run.

Epoch e of task t, each of which takes at most E epochs, stands at step t·E + e, and the scores after task t at step
(t + 1)·E. That is a function of the place alone: whoever goes on, in this process or another, writes where the one
before would have, and what is repeated stands again at its own step.

    epoch/train_loss, epoch/valid_loss, epoch/valid_score, epoch/lr, epoch/s, epoch/capacity
    score/task 1, score/task 2, … score/average      on the test parts of all tasks so far

Scores of different kinds, accuracies and R², have no average.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from hatrack import atomic
from hatrack.errors import HatrackError
from hatrack.learn.fit import Epoch
from hatrack.learn.machine.parallel import writes
from hatrack.methods.hyper import hyperparameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hatrack.learn.learner import Learner

SHOWN = {name: name for name in ("train_loss", "valid_loss", "lr", "s", "capacity")} | {"valid_score": "valid_accuracy"}
"""What is shown of an epoch, and its field."""


class Plan(Protocol):
    """What a run says before it begins."""

    @property
    def epochs(self) -> int: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...


class Finished(Protocol):
    """What a learner and a run say of a finished task."""

    @property
    def accuracy(self) -> Sequence[float | None]: ...


class Logger(ABC):
    """A callback of learners and runs that writes their figures and settings.

    folder    one folder is one run: a logger over the same folder goes on with it, in this process or another
    name      of the run, where the tool has names; without one that of the folder
    project   what the tool gathers runs under

    Nothing is written before the first epoch is over. A subclass names the `module` that it needs and the `extra` that
    brings it, and says how to `open` the run and how to write `settings` and `figures`.
    """

    module: ClassVar[str]
    extra: ClassVar[str]
    environ: ClassVar[Mapping[str, str]] = {}  # switches of the module's that are to stand before it is imported

    def __init__(self, folder: str | Path, name: str | None = None, project: str = "hatrack") -> None:
        self.required()
        self.folder = Path(folder).absolute()
        self.name = name or self.folder.name
        self.project = project
        self._epochs, self._open = 1, False
        self._scores: Callable[[], list[str]] = list  # what the tasks of a learner are scored by
        self._told: dict[str, Any] = {}
        self._written: dict[str, Any] = {}  # of the settings that were told

    @classmethod
    def required(cls) -> Any:
        """Return the module, or say what is missing."""
        for name, value in cls.environ.items():
            os.environ.setdefault(name, value)
        try:
            return import_module(cls.module)
        except ImportError:
            raise HatrackError(
                f"{cls.__name__} needs a package that is not installed: pip install 'hatrack[{cls.extra}]'."
            ) from None

    # ---- what a tool is to do

    @abstractmethod
    def open(self, step: int) -> None:
        """Begin or go on with the folder's run; what is written from now on stands at `step` or later."""

    @abstractmethod
    def settings(self, values: Mapping[str, Any]) -> None:
        """Write settings; of one that was written before, the first value or the last may stay."""

    @abstractmethod
    def figures(self, values: Mapping[str, float], step: int) -> None:
        """Write figures."""

    @abstractmethod
    def end(self, finished: bool) -> None:
        """Let go of what `open` has opened."""

    # ---- what is told

    def on_start(self, plan: Plan) -> None:
        """Note what a run is about to do."""
        self._epochs = max(plan.epochs, 1)
        self._told |= flat(plan.settings)

    def on_begin(self, learner: Learner) -> None:
        """Note what a learner learns with."""
        method = learner.method
        self._scores = lambda: [learner.tasks[t].target.judged().score for t in learner.model.remaining]
        own = {f"method.{name}": getattr(method, name) for name in hyperparameters(type(method))}
        values = {name: getattr(learner, name) for name in ("epochs", "batch_size", "seed")}
        names = named(task.name for task in learner.tasks)
        self._told |= {"method": method.name, **own, "net": type(learner.model.net).__name__, **values, **names}

    def on_epoch(self, epoch: Epoch) -> None:
        """Write an epoch's figures."""
        self._epochs = max(epoch.epochs, 1)
        known = {f"epoch/{name}": getattr(epoch, field) for name, field in SHOWN.items()}
        self._write(known, epoch.task * self._epochs + epoch.epoch)

    def on_task(self, task: Finished) -> None:
        """Write the scores after a task."""
        tested = {f"score/task {n}": score for n, score in enumerate(task.accuracy, start=1) if score is not None}
        alike = len(set(getattr(task, "scores", self._scores()))) < 2
        average = {"score/average": fmean(tested.values())} if tested and alike else {}
        self._write(tested | average, len(task.accuracy) * self._epochs)

    def on_end(self, finished: bool) -> None:
        """Close at a run's end, however it came."""
        self.close(finished)

    def close(self, finished: bool = True) -> None:
        """Write what is still to be written; figures that come later open the same run again."""
        if self._open:
            self._open = False
            self.end(finished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(kind is None)

    def _write(self, values: Mapping[str, float | None], step: int) -> None:
        if not writes():
            return
        if not self._open:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise HatrackError(
                    f"{type(self).__name__} cannot make the folder {str(self.folder)!r}: {error.strerror}."
                ) from None
            self.open(step)
            self._open = True
        new = {name: value for name, value in self._told.items() if self._written.get(name, ...) != value}
        if new:
            self.settings(new)
            self._written |= new
        self.figures({name: float(value) for name, value in values.items() if value is not None}, step)

    # ---- whose run it is

    @property
    def identity(self) -> str | None:
        """What the tool knows the folder's run by, once there is one."""
        file = self.folder / f"{self.extra}.id"
        return file.read_text().strip() if file.exists() else None

    @identity.setter
    def identity(self, known: str) -> None:
        atomic.write(self.folder / f"{self.extra}.id", known)


def named(tasks: Iterable[str]) -> dict[str, str]:
    """Return the names of tasks as settings."""
    return {f"task {number}": name for number, name in enumerate(tasks, start=1)}


def flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings under their full names, such as net_options.dropout."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, value
