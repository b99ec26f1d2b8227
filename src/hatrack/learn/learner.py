"""The learner: one network, one method, an open-ended list of tasks, and a training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hatrack.data.feed import Feed, Part
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.callbacks import refuse_deaf
from hatrack.learn.core import Core
from hatrack.learn.fit import Epoch, test_score
from hatrack.learn.history import TaskHistory
from hatrack.learn.loop import learn_task, test_part
from hatrack.learn.machine.engine import resolve_engine
from hatrack.learn.overview import as_html
from hatrack.learn.progress import shown
from hatrack.learn.refusals import refuse_unfit, whole
from hatrack.learn.samples import Samples
from hatrack.learn.schedule import Scheduler, resolve_scheduler
from hatrack.learn.step import OptimizerFactory
from hatrack.learn.which.answer import FALSE_ALARMS
from hatrack.learn.which.scores import DEFAULT
from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.modes import in_turns_undisturbed, undisturbed

if TYPE_CHECKING:
    from hatrack.life.adopt import Adopted
    from hatrack.life.observe import Observed
    from hatrack.life.update import Updated


class Learner(Core):
    """Teaches `net` (any module inputs → features) one task after another.

    method      hatrack.HAT() without one; a method object serves one learner only
    optimizer   None for the method's own (plain SGD at its lr), or a callable parameters → torch optimiser; a fresh
                one is made for every task, so that no momentum leaks from one task into the next. It must hold all
                that it is given and nothing else; freeze weights that are not to move. Gates move beside it by a rule
                of their own, unless it takes them: p["gates"], of p["net"], p["gates"], p["heads"], p["norms"].
                Muon with AdamW, schedule-free ones, accumulation and others: docs/optimisers.md
    scheduler   "patience", which ends a task where validation stalls; "cosine", "onecycle" or "constant", which train
                all epochs; or a callable optimiser → torch scheduler, stepped by epoch, or by step under
                hatrack.ByStep(lambda optimizer, steps: …). Fresh for every task; the best epoch counts under each
    features    what of the network's output the heads read, where that is more than one tensor: a name, a place, or a
                function of the output (or of output and input), such as lambda out: out.last_hidden_state[:, 0]
    epochs      at most so many a task; the patience schedule usually stops earlier, no other does
    batch_size  samples a step; a last batch of one is left out of its epoch where batch norm refuses it
    engine      how steps are carried out: "eager", "compiled", "graph" (CUDA), or "auto"; see engine.py
    precision   of the layers' arithmetic: "float32", "tf32" (differs on CUDA only), "bf16" or "auto"; see precision.py

    A task is learned or it never was: where learning fails, the learner is as it was before (see before.py). Finished
    tasks can be asked from any thread while another one learns. Autocast, inference mode and no_grad that a caller has
    switched on have no say in either.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method | None = None,
        optimizer: OptimizerFactory | None = None,
        *,
        scheduler: Scheduler = "patience",
        features: str | int | Callable[..., Tensor] | None = None,
        epochs: int = 200,
        batch_size: int = 64,
        seed: int = 0,
        device: str | torch.device = "auto",
        workers: int = 0,
        engine: str = "auto",
        precision: str = "tf32",
    ) -> None:
        method = method if method is not None else HAT()
        refuse_unfit(net, method, optimizer)
        workers, scheduler = whole("workers", workers, least=0), resolve_scheduler(scheduler)
        super().__init__(
            net,
            method,
            features=features,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            device=device,
            precision=precision,
        )
        self.workers = workers
        self.engine = resolve_engine(engine, self.device)
        self._optimizer, self._scheduler = optimizer, scheduler
        self.scheduled_with = scheduler if isinstance(scheduler, str) else None
        self._samples = Samples(self.seed, method.remembered() if method.needs_old_data else None)
        self._tests: dict[int, Part] = {}  # of finished tasks, as far as they are at hand
        self._feeds: dict[int, tuple[Part, Feed]] = {}  # what was last evaluated of a task, on the device
        self._stop = False
        self._aside: list[tuple[Any, Tensor]] = []  # samples of a stream that are of no known task

    def _growing(self) -> list[Any]:
        """Return what every task adds to."""
        return [*super()._growing(), self._tests]

    def _dismiss(self, index: int) -> None:
        super()._dismiss(index)
        self._tests.pop(index, None)
        self._feeds.pop(index, None)

    # ---- learning

    def learn(
        self,
        task: Task,
        on_epoch: Callable[[Epoch], object] | None = None,
        on_task: Callable[[TaskHistory], object] | None = None,
        *,
        callback: object = None,
        progress: bool | None = None,
    ) -> TaskHistory:
        """Learn one more task (or go on with the one that a loaded learner was interrupted in), and test all so far.

        on_epoch  called with each Epoch when it is over; what it raises ends the task (see above)
        on_task   called with what is returned, when the task is learned and tested
        callback  an object with methods of these names
        progress  one line on standard error; without a word, on a terminal and in a notebook
        """
        callbacks: list[object] = [SimpleNamespace(on_epoch=on_epoch, on_task=on_task)]
        if callback is not None:
            refuse_deaf(callback)
            callbacks.append(callback)
        with shown(progress) as line:
            for _ in self.learning(task, *callbacks, line):
                pass
        return self._history[self.finished - 1]

    def stop(self) -> None:
        """End the task that is being learned when its current epoch is over; it keeps its best one, and is learned.

        To be called from a callback or from another thread. What phases the method has left take no epoch.
        """
        if self._learning is None:
            raise HatrackError("no task is being learned, so there is none to stop.")
        self._stop = True

    def learning(self, task: Task, *callbacks: object) -> Iterator[None]:
        """Do what `learn` does bit by bit: every pause is a moment at which another learner may have its turn."""
        if not isinstance(task, Task):
            raise HatrackError(f"learn takes a task, hatrack.Task(name, train=(x, y)), got {type(task).__name__}.")
        with self.model.turn:
            self._refuse_if_learning()
            self._learning, self._stop = (task.name, get_ident()), False
        try:
            yield from in_turns_undisturbed(learn_task(self, task, callbacks))
        finally:
            self._learning = None

    def adopt(self, task: Task, head: nn.Module | None = None, *, room: float = 0.0, cost: float = 0.01) -> Adopted:
        """Make what net does today, read by `head`, the first finished task, locked and verified like any other.

        head  the last layer, taken off the network: torch.nn.Linear or a 1×1 convolution
        room  the share of weights to be left free, found on the task's samples with the network's own answers as the
              teacher; no weight moves, and the score falls by no more than `cost`. Without it all is locked
        """
        from hatrack.life.adopt import adopt

        return adopt(self, task, head, room, cost)

    def update(
        self,
        task: int | str,
        data: Task,
        accept: str = "better",
        on_epoch: Callable[[Epoch], object] | None = None,
        *,
        callback: object = None,
        progress: bool | None = None,
    ) -> Updated:
        """Let a finished task go on learning from more or newer data, with more classes, or in another domain.

        What only it uses may move, free weights may be taken, and what other tasks use stays bit by bit. The version
        before answers until the new one is accepted: where it scores better on the validation samples of `data`
        ("better"), or always. `revert` goes back to it. `data`: a Task, whose name does not matter; the rest is as in
        `learn`, and an update that was interrupted goes on by the same call.
        """
        from hatrack.life.update import update

        return update(self, task, data, accept, on_epoch=on_epoch, callback=callback, progress=progress)

    def observe(
        self, x: Any, y: Any, *, enough: int = 256, score: str = DEFAULT, false_alarms: float = FALSE_ALARMS
    ) -> Observed:
        """Take a batch of a stream that names no tasks for one that is known, or learn a new one of `enough` samples.

        y  integer labels, which the classes of a new task are called by. See life/observe.py
        """
        from hatrack.life.observe import observe

        return observe(self, x, y, enough, score, false_alarms)

    def remember(self, task: Task) -> None:
        """Hand a loaded learner an earlier task, for `matrix`; where the method needs its data, in the tasks' order."""
        index = self.index(task.name)
        if self.method.needs_old_data:
            if index != self._samples.tasks:
                raise HatrackError(
                    f"task {task.name!r} is not the next one to remember (number {self._samples.tasks})."
                )
            self._samples.keep(*self._samples.parts(task, index))
        self.tasks[index] = replace(self.tasks[index], target=self.tasks[index].predicting(task.target))
        self.model.targets[index] = self.tasks[index].target
        self._tests |= test_part(task, index)

    # ---- memory

    @staticmethod
    def from_pretrained(
        repo_or_folder: str | Path,
        net: nn.Module,
        method: Method | str | None = None,
        optimizer: Any = None,
        device: str | torch.device = "auto",
        engine: str = "auto",
        *,
        scheduler: Scheduler | None = None,
        features: Any = None,
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> Learner:
        """Return what `push_to_hub` or `save` wrote, over a network of the same architecture; see `hatrack.load`.

        Of a repository ("owner/name") the files of the saved learner alone are fetched. A folder of that name wins.
        `revision`: a branch, a tag or a commit.
        """
        from hatrack.learn.state import load
        from hatrack.ship.hub import fetched

        folder = fetched(repo_or_folder, revision, token)
        return load(folder, net, method, optimizer, device, engine, scheduler=scheduler, features=features)

    # ---- using what was learned

    def evaluate(self, task: Task, learned: int | str) -> float:
        """Return the score of a finished task, given by number or name, on the test samples of `task`.

        They stay on the device.
        """
        index = self.index(learned)
        if task.test is None:
            raise HatrackError(f"task {task.name!r} has no test part to evaluate on.")
        return self._accuracy(test_part(task, index)[index])

    def _accuracy(self, part: Part) -> float:
        known = self._feeds.get(part.task)
        if known is None or known[0] != part:
            known = self._feeds[part.task] = part, Feed([part], self.device, self.workers)
        with undisturbed():
            self.model.refuse_altered()
            learned = self.tasks[part.task]
            return test_score(self.method, known[1], part.task, learned.predicting(part.target), learned.name)

    # ---- what it looks like

    def _repr_html_(self) -> str:
        return as_html(self)

    def report(self, folder: str | Path) -> Path:
        """Write report.html, and the small files that it is read from, to `folder`; return the page's path."""
        from hatrack.runs.saved import write_report

        return write_report(self, Path(folder))
