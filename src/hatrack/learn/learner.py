"""The learner: one network, one method, an open-ended list of tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from numbers import Integral
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from hatrack.data.feed import Feed, Part
from hatrack.data.task import Task, as_inputs
from hatrack.errors import HatrackError, unknown
from hatrack.learn.before import Before
from hatrack.learn.binned import used_fields
from hatrack.learn.callbacks import refuse_deaf
from hatrack.learn.capacity import used_weights
from hatrack.learn.copying import BY_FOLDER, copied
from hatrack.learn.fit import Epoch, Fit, Resume, test_score
from hatrack.learn.history import TaskHistory
from hatrack.learn.learned import Learned
from hatrack.learn.loop import learn_task, test_part
from hatrack.learn.machine.engine import resolve_engine
from hatrack.learn.machine.parallel import writes
from hatrack.learn.overview import as_html
from hatrack.learn.progress import shown
from hatrack.learn.proof import verification as proof
from hatrack.learn.proof.seals import fingerprint
from hatrack.learn.refusals import refuse_shared_memory, refuse_unfit, whole
from hatrack.learn.samples import Samples
from hatrack.learn.step import OptimizerFactory
from hatrack.measure.shares import Share, reuse
from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.modes import in_turns_undisturbed, undisturbed
from hatrack.nets.model import Model
from hatrack.tree import mapped

P = ParamSpec("P")
R = TypeVar("R")


def _alone(ask: Callable[Concatenate[Learner, P], R]) -> Callable[Concatenate[Learner, P], R]:
    """Let a question have the network to itself between two steps of whoever trains it, whatever the caller does."""

    @wraps(ask)
    def asked(learner: Learner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with learner.model.alone(), learner._settled(), undisturbed():
            learner.model.refuse_altered()
            return ask(learner, *args, **kwargs)

    return asked


class Learner:
    """Teaches `net` (any module inputs → features) one task after another.

    method      hatrack.HAT() without one; a method object serves one learner only
    optimizer   None for the method's own (plain SGD at its lr), or a callable parameters → torch optimiser; a fresh
                one is made for every task, so that no momentum leaks from one task into the next. It must hold all
                that it is given (heads and gates among it) and nothing else; freeze weights that are not to move.
                Muon with AdamW, schedule-free ones, accumulation and others: docs/optimisers.md
    features    what of the network's output the heads read, where that is more than one tensor: a name, a place, or a
                function of the output (or of output and input), such as lambda out: out.last_hidden_state[:, 0]
    epochs      at most so many a task; the patience schedule usually stops earlier
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
        self.method = method
        self.epochs = whole("epochs", epochs, least=1)
        self.batch_size = whole("batch_size", batch_size, least=1)
        self.seed = whole("seed", seed, least=0)
        self.workers = whole("workers", workers, least=0)
        self.device = pick_device(device)
        self.engine = resolve_engine(engine, self.device)
        with undisturbed():
            self.model = Model(net, self.device, precision, features)
            refuse_shared_memory(net)  # that of where it is now
            self.method.attach(self.model)
        self.tasks: list[Learned] = []  # the task in progress included
        self.probes: list[proof.Probe] = []
        self.capacities: list[Share] = []
        self.locked_values = proof.LockedValues()
        self._optimizer = optimizer
        self.trained_with: str | None = None  # the kind of optimiser, where it is not the method's own
        self._samples = Samples(self.seed, method.remembered() if method.needs_old_data else None)
        self._fit: Fit | None = None
        self._resume: Resume | None = None
        self._history: list[TaskHistory] = []  # the task in progress included
        self._tests: dict[int, Part] = {}  # of finished tasks, as far as they are at hand
        self._feeds: dict[int, tuple[Part, Feed]] = {}  # what was last evaluated of a task, on the device
        self._stop = False
        self._ending: str | None = None  # the task that is being finished: until then, masks and probes do not agree
        self._before: Before | None = None  # what there was before the task in progress
        self._learning: tuple[str, int] | None = None  # the task that is being learned right now, and the thread
        self.stored: dict[tuple[Path, str], tuple[Any, dict[str, Any]]] = {}  # files already on disk

    # ---- learning

    @property
    def finished(self) -> int:
        """The number of tasks that are learned."""
        return len(self.probes)

    @property
    def parameters_count(self) -> int:
        """The number of parameters that the answers of all tasks so far are computed with.

        The network, less what every task has a copy of; those copies; the heads; what the method adds. Masks and what
        only training needs (Fisher matrices, anchors, samples) are not counted.
        """
        model = self.model
        named = dict(model.net.named_parameters())
        copies = [t for own in model.private for name, t in own.items() if name in named]
        shared = [p for n, p in named.items() if not model.private or any(n not in own for own in model.private)]
        heads = [p for head in model.heads for p in head.parameters()]
        return sum(t.numel() for t in (*shared, *copies, *heads, *self.method.answering()))

    @property
    def learnable_count(self) -> int:
        """The number of parameters that training moved, those of all tasks together, masks among them."""
        return self.parameters_count + self.method.learned_besides(len(self.model.heads))

    @property
    def history(self) -> list[TaskHistory]:
        """What `learn` has returned for every finished task."""
        return self._history[: self.finished]

    def matrix(self) -> list[list[float | None]]:
        """Return the scores so far (accuracies, of classes): row t holds, after task t, those on tasks 1 to t.

        None where a task has no test part, or it was not at hand: a loaded learner has those of `remember`.
        """
        return [list(known.accuracy) for known in self.history]

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

    def abandon(self) -> None:
        """Give up the task in progress: the learner is as it was before it, and can learn another.

        Also after a load, from a folder that was saved in the middle of the task. One that version 0.1 saved does not
        hold the network of before: there heads, masks and all that finished tasks locked come back, and entries that
        were free keep what the task has left in them.
        """
        self._refuse_if_learning()
        if self._before is None or (len(self.tasks) == self.finished and self._ending is None):
            raise HatrackError("there is no task in progress to give up; all that are begun are finished.")
        self._go_back(self._before, self._ending or self.tasks[-1].name)

    def _go_back(self, before: Before, name: str) -> None:
        with self.model.turn:
            self._ending = name  # a learner that is half on its way back can only be sent there again
            before.restore(self)
            self._ending = None

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

    def _refuse_if_broken(self) -> None:
        if self._ending is not None:
            raise HatrackError(
                f"this learner was stopped while it finished task {self._ending!r}, and is in no state to go on; give "
                f"the task up with learner.abandon(), or load the last one saved."
            )

    def _refuse_if_learning(self) -> None:
        if self._learning is not None:
            raise HatrackError(f"task {self._learning[0]!r} is being learned; wait for its end, or stop it first.")

    def _drawn(self, task: int) -> Any:
        return self.tasks[task].drawn(self.seed, task, self.device)

    def _prepared(self, x: Any, task: int) -> Any:
        return self.tasks[task].inputs.on(self.device)(mapped(lambda part: part.to(self.device), x))

    # ---- using what was learned

    def index(self, task: int | str) -> int:
        """Return the number of a finished task given by number or name."""
        names = [t.name for t in self.tasks[: self.finished]]
        if not names:
            raise HatrackError(f"there is no task {task!r}: none is learned yet; call learner.learn(task) first.")
        if isinstance(task, str):
            if task not in names:
                raise unknown("task", task, names)
            return names.index(task)
        if not isinstance(task, Integral):
            raise HatrackError(f"a task is given by its number or its name, got {task!r}.")
        if not 0 <= task < len(names):
            raise HatrackError(f"there is no task number {task}; {len(names)} are learned (0 to {len(names) - 1}).")
        return int(task)

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Let the device finish what another thread, with a stream of its own, has it train; and the other way."""
        elsewhere = self._learning is not None and self._learning[1] != get_ident() and self.device.type == "cuda"
        if elsewhere:
            torch.cuda.synchronize(self.device)
        yield
        if elsewhere:
            torch.cuda.synchronize(self.device)

    @_alone
    @torch.no_grad()
    def predict(self, x: Any, task: int | str) -> Tensor:
        """Return the logits of raw inputs, prepared as the task's own were; task by name or number.

        Of a regression, figures in the unit of its targets. One sample without a batch axis is a batch of one.
        """
        index = self.index(task)
        given, learned = as_inputs(x), self.tasks[index]
        raw = learned.batch(given, self.device)
        with learned.fitting(given, raw):
            return learned.target.answer(self.method.predict(learned.inputs.on(self.device)(raw), index))

    def decode(self, answer: Tensor, task: int | str) -> Any:
        """Return what `predict` gave in the words of the task: its classes' names, or their numbers."""
        return self.tasks[self.index(task)].target.decode(answer)

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
            return test_score(self.method, known[1], part.task, self.tasks[part.task].predicting(part.target))

    @_alone
    def verify(self, probes: Mapping[int | str, Any] | None = None) -> proof.Verification:
        """Recompute what every finished task gave and relies on, and compare bit by bit.

        `probes`: for tasks that were learned with probes of their own (see Task), these again, by number or name.
        """
        own: dict[int, Any] = {}
        for task, x in (probes or {}).items():
            index, given = self.index(task), as_inputs(x, f"the probes of task {task!r}")
            kept = self.probes[index].own
            if kept is None or fingerprint(given) != kept.digest:
                why = "was learned without probes of its own" if kept is None else "had others (their digests differ)"
                raise HatrackError(f"task {task!r} {why}; hand in what Task(..., probes=…) got, or nothing.")
            own[index] = self._prepared(given, index)
        return proof.prove(self.method, self.tasks[: self.finished], self.probes, self.locked_values, self._drawn, own)

    # ---- what it looks like

    def __repr__(self) -> str:
        names = ", ".join(repr(t.name) for t in self.tasks[: self.finished]) or "none"
        return f"Learner({type(self.model.net).__name__}, {self.method!r}, tasks={self.finished}: {names})"

    def _repr_html_(self) -> str:
        return as_html(self)

    def _gates(self) -> list[Tensor] | None:
        gates = [self.method.unit_gates(t) for t in range(self.finished)]
        known = [g.float() for g in gates if g is not None]
        return known if known else None

    def masks(self) -> dict[str, Tensor] | None:
        """Return every finished task's gates as "<task>/<site>" → vector; None for methods without unit masks."""
        gates = self._gates()
        if gates is None:
            return None
        return {
            f"{t}/{site.name}": part.cpu().contiguous()
            for t, gate in enumerate(gates)
            for site, part in self.model.units.by_site(gate)
        }

    def weight_masks(self) -> dict[str, Tensor] | None:
        """Return how much each finished task uses of the weights, binned (see binned.py), where there are no gates."""
        return None if self._gates() is not None else used_fields(self.method, self.finished)

    def capacity(self) -> list[Share] | None:
        """Return, after each task, the share of weights taken: in all and layer by layer."""
        return self.capacities or None

    def reuse(self) -> list[list[float | None]] | None:
        """Return the share of task i's weights that each later task j uses again."""
        used = [used_weights(self.method, t) for t in range(self.finished)]
        known = [u for u in used if u is not None]
        return reuse(known) if known else None

    def kept_bytes(self) -> int:
        """Return how much the method stores for finished tasks besides network and heads.

        Masks, importances, own weights, chosen samples. Not counted: the data of old tasks, where a method is handed
        them again.
        """
        own = [tensor for private in self.model.private for tensor in private.values()]
        return sum(tensor.nbytes for tensor in [*self.method.state().values(), *own])

    def report(self, folder: str | Path) -> Path:
        """Write report.html, and the small files that it is read from, to `folder`; return the page's path."""
        from hatrack.runs.saved import write_report

        return write_report(self, Path(folder))

    # ---- memory

    def save(self, folder: str | Path) -> None:
        """Write everything to `folder` (safetensors and JSON), also in the middle of a task.

        Between epochs, what is loaded goes on as if nothing had happened; an epoch that was stopped in its middle is
        begun again. Of several processes of torchrun's, which hold the same, the first one writes.
        """
        from hatrack.learn.state import snapshot

        self._refuse_if_broken()
        with self.model.turn:
            self.model.refuse_altered()
            write = snapshot(self, Path(folder))
        if writes():
            write()

    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        """Return a learner that goes its own way from here; samples, which never change, are shared."""
        return copied(self, memo)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise HatrackError(f"a learner cannot be pickled; {BY_FOLDER}")


def pick_device(device: str | torch.device) -> torch.device:
    """Return the device that was asked for; "auto" takes CUDA where there is one."""
    # By default eight streams at most reach a GPU independently; runs side by side need more (read when CUDA starts).
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        picked = torch.device(device)
        torch.empty(0, device=picked)
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        first = str(error).splitlines()[0]
        raise HatrackError(f"device {str(device)!r} cannot be used ({first}); try 'auto' or 'cpu'.") from None
    return picked
