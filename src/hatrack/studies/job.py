"""One run of a study as a piece of work: start it, or go on with it, wherever it stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError
from hatrack.learn.fit import Epoch
from hatrack.loggers import beside
from hatrack.runs import runner, spec
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.runs.folder import Folder, InUse, create, open_run
from hatrack.runs.setup import prepare
from hatrack.runs.spec import Spec

POLL = 0.5  # seconds between two looks at a folder that another process holds
NAP = 1e-3  # seconds that a turn of waiting for it takes


@dataclass(frozen=True)
class Job:
    """A run to be carried out in `path`; where all runs in `against` are finished then, with measures from them.

    `log`: the names of its loggers.
    """

    path: Path
    spec: Spec
    log: tuple[str, ...] = ()
    against: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def done(self) -> bool:
        """Whether the run is finished, its report included: a process killed before that left only the result."""
        return all((self.path / name).exists() for name in ("result.json", "report.html"))


@dataclass(frozen=True)
class Step:
    """Where a run stands: tasks learned of all, epochs of the current one; and the task that was just `learned`."""

    task: int
    tasks: int
    epoch: int
    learned: TaskResult | None = field(default=None, compare=False)


def execute(job: Job, tell: Callable[[Any], Any]) -> None:
    """Do what is left of a run; `tell` hears a `Step` after every epoch."""
    for _ in executing(job, tell):
        pass


def executing(job: Job, tell: Callable[[Any], Any]) -> Iterator[None]:
    """Do the same bit by bit, so that several runs can take turns."""
    folder = yield from _opening(job)
    with folder as opened:
        if runner.finished(opened) is not None:
            return
        # Data and devices of this machine may not be those of where the run was begun.
        here = {key: getattr(job.spec, key) for key in ("data", "device", "engine")}
        whole = spec.read(opened.spec, anywhere=True, named=job.spec.found).model_copy(update=here)
        setup = prepare(whole, opened.checkpoint)
        yield from runner.executing(setup, opened, beside(_Relay(tell), job.log, job.path), job.against)


def _opening(job: Job) -> Generator[None, None, Folder]:
    """Open the run's folder, made if need be; while another process works on it, let others have their turns."""
    while True:
        try:
            if (job.path / "spec.toml").exists():
                return open_run(job.path)
            return create(job.spec.toml(), job.path, "")
        except InUse:
            until = time.monotonic() + POLL
            while time.monotonic() < until:
                time.sleep(NAP)
                yield
        except HatrackError:
            if not (job.path / "spec.toml").exists():
                raise  # else another process has made it between the two looks


class _Relay:
    """A callback that passes on where the run stands."""

    def __init__(self, tell: Callable[[Any], Any]) -> None:
        self._tell = tell

    def on_start(self, plan: RunPlan) -> None:
        self._tasks = len(plan.names)
        self._tell(Step(plan.finished, self._tasks, 0))

    def on_epoch(self, epoch: Epoch) -> None:
        self._tell(Step(epoch.task, self._tasks, epoch.epoch))

    def on_task(self, result: TaskResult) -> None:
        self._tell(Step(result.task + 1, self._tasks, 0, result))
