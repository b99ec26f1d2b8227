"""The learner: one network, one method, an open-ended list of tasks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import wraps
from numbers import Integral
from pathlib import Path
from threading import get_ident
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hatrack.data.feed import Feed, Part
from hatrack.data.kind import Kind, seen
from hatrack.data.task import Inputs, Task, as_floats, as_inputs
from hatrack.errors import HatrackError, HatrackWarning, unknown
from hatrack.learn import proof
from hatrack.learn.before import Before
from hatrack.learn.capacity import check_free, taken_weights, used_weights
from hatrack.learn.cohort import let_go
from hatrack.learn.engine import resolve_engine
from hatrack.learn.fit import Epoch, Fit, Place, Resume, accuracy
from hatrack.learn.parallel import crew, require_joined, writes
from hatrack.learn.samples import Samples
from hatrack.learn.seals import fingerprint
from hatrack.learn.seeds import everywhere, generator, noise
from hatrack.learn.step import OptimizerFactory
from hatrack.learn.trial import drawable, first_line, fitting, try_out
from hatrack.measure.shares import Share, reuse
from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.nets.model import Model
from hatrack.surroundings import in_turns_undisturbed, undisturbed

BY_FOLDER = "save it (learner.save) and load it from the folder (hatrack.load)."
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


@dataclass(frozen=True)
class Learned:
    """What the learner remembers of a task."""

    name: str
    classes: int
    inputs: Inputs
    kind: Kind

    def drawn(self, seed: int, task: int, device: torch.device, count: int = proof.PROBES) -> Tensor:
        """Return prepared inputs such as it learned, drawn from the seed for task number `task`."""
        x = self.kind.draw(count, everywhere(seed, "probe", task)).to(device)
        return self.inputs.on(device)(x) if self.kind.raw else x


class Learner:
    """Teaches `net` (any module x → features) one task after another.

    method      hatrack.HAT() without one; a method object serves one learner only
    optimizer   None for the method's own (plain SGD at its lr), or a callable parameters → torch optimiser; a fresh
                one is made for every task, so that no momentum leaks from one task into the next. It must hold all
                that it is given (heads and gates among it) and nothing else; freeze weights that are not to move.
                Muon with AdamW, schedule-free ones, accumulation and others: docs/optimisers.md
    epochs      at most so many a task; the patience schedule usually stops earlier
    batch_size  samples a step; a last batch of one is left out of its epoch where batch norm refuses it (shortest.py)
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
        epochs: int = 200,
        batch_size: int = 64,
        seed: int = 0,
        device: str | torch.device = "auto",
        workers: int = 0,
        engine: str = "auto",
        precision: str = "tf32",
    ) -> None:
        method = method if method is not None else HAT()
        _refuse_unfit(net, method, optimizer)
        self.method = method
        self.epochs = _whole("epochs", epochs, least=1)
        self.batch_size = _whole("batch_size", batch_size, least=1)
        self.seed = _whole("seed", seed, least=0)
        self.workers = _whole("workers", workers, least=0)
        self.device = pick_device(device)
        self.engine = resolve_engine(engine, self.device)
        with undisturbed():
            self.model = Model(net, self.device, precision)
            self.method.attach(self.model)
        self.tasks: list[Learned] = []  # the task in progress included
        self.probes: list[proof.Probe] = []
        self.capacities: list[Share] = []
        self.vault = proof.Vault()
        self._optimizer = optimizer
        self.trained_with: str | None = None  # the kind of optimiser, where it is not the method's own
        self._samples = Samples(self.seed, method.remembered() if method.needs_old_data else None)
        self._fit: Fit | None = None
        self._resume: Resume | None = None
        self._tests: dict[int, tuple[Task, Feed]] = {}
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

    def learn(self, task: Task, on_epoch: Callable[[Epoch], None] | None = None) -> None:
        """Learn one more task (or go on with the one that a loaded learner was interrupted in)."""
        for _ in self.learning(task, on_epoch):
            pass

    def learning(self, task: Task, on_epoch: Callable[[Epoch], None] | None = None) -> Iterator[None]:
        """Do what `learn` does bit by bit: every pause is a moment at which another learner may have its turn."""
        if not isinstance(task, Task):
            raise HatrackError(f"learn takes a task, hatrack.Task(name, train=(x, y)), got {type(task).__name__}.")
        with self.model.turn:
            self._refuse_if_learning()
            self._learning = task.name, get_ident()
        try:
            yield from in_turns_undisturbed(self._learned_or_not(task, on_epoch))
        finally:
            self._learning = None

    def _learned_or_not(self, task: Task, on_epoch: Callable[[Epoch], None] | None) -> Generator[None, None, None]:
        """Learn the task, or be as before; a task that is stopped (Ctrl-C) while it is trained stays in progress."""
        self._refuse_if_broken()
        require_joined()
        self.model.refuse_altered()
        index = self.finished
        self._refuse_another(task, index)
        part, held = self._samples.parts(task, index)
        if self.method.needs_old_data and self._samples.tasks < index:
            raise HatrackError(
                f"{self.method.name} needs the data of all {index} earlier tasks; call learner.remember(task) "
                f"for each of them first."
            )
        train = Feed([*self._samples.train, part], self.device, self.workers)
        valid = {p.task: Feed([p], self.device, self.workers) for p in (*self._samples.valid, held)}
        begun = False
        with self.model.turn:
            before = Before(self)
        if len(self.tasks) == index:  # else the task goes on, and began earlier
            self._before = before
        try:
            with self.model.turn:
                with self._noise(index, 0):
                    try_out(self.model, task, index, self.batch_size)
                if index and len(self.tasks) == index:  # what a task that goes on has taken already is its own
                    check_free(self.method, task.name)
                self._begin(task, index, train)
            begun = True
            yield from self._run(task, train, valid, on_epoch)
            with self.model.turn:
                self._end(task, train, index)
                self._samples.keep(part, held)
                self._before = None
        except BaseException as error:
            if isinstance(error, Exception) or not begun:
                if isinstance(error, torch.OutOfMemoryError | MemoryError):
                    let_go(error)
                self._go_back(before, task.name)
            raise

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
        """Hand a loaded learner the data of an earlier task, for methods that need it."""
        index = self._samples.tasks
        if index >= self.finished or self.tasks[index].name != task.name:
            raise HatrackError(f"task {task.name!r} is not the next one to remember (number {index}).")
        self._samples.keep(*self._samples.parts(task, index))

    def _refuse_another(self, task: Task, index: int) -> None:
        """Refuse a task that is learned already, or another than the one in progress."""
        if task.name in {t.name for t in self.tasks[:index]}:
            raise HatrackError(f"a task named {task.name!r} is learned already; give each task a name of its own.")
        if len(self.tasks) > index and self.tasks[index].name != task.name:
            raise HatrackError(
                f"the learner was interrupted in task {self.tasks[index].name!r}; go on with that one before "
                f"{task.name!r}, or give it up with learner.abandon()."
            )

    def _begin(self, task: Task, index: int, train: Feed) -> None:
        if len(self.tasks) == index:
            if task.classes == 1:
                line = f"task {task.name!r} has one class: whatever is learned, its accuracy is 1."
                warnings.warn(HatrackWarning(line), stacklevel=2)
            learned = Learned(task.name, task.classes, task.inputs, self._seen(task, index))
            drawn = learned.drawn(self.seed, index, self.device)
            with drawable(task):
                self.model.tried(drawn)  # else it would come to light after training
            self.model.meet(drawn)
            with fitting(task, drawn):
                self.model.add_task(task.classes, generator(self.seed, "head", index), self.method.private())
            self.tasks.append(learned)
        if not self.tasks[index].kind.raw:  # from a save of version 0.1, which did not say
            self.tasks[index] = replace(self.tasks[index], kind=self._seen(task, index))
        with self._noise(index, 0):
            self.method.begin_task(index, train, generator(self.seed, "method", index))

    def _seen(self, task: Task, index: int) -> Kind:
        with self._noise(index, 3):  # a Dataset may draw
            return seen(task.train)

    def _run(
        self, task: Task, train: Feed, valid: Mapping[int, Feed], on_epoch: Callable[[Epoch], None] | None
    ) -> Iterator[None]:
        if self._optimizer is None and self.trained_with is not None and self._resume is None:
            line = (
                f"this learner was trained with {self.trained_with}; it goes on with {self.method.name}'s own optimiser"
            )
            warnings.warn(HatrackWarning(f"{line}: to keep the other, load it with optimizer=…"), stacklevel=3)
            self.trained_with = None
        resume, self._resume = self._resume, None
        phases = self.method.phases(self.epochs if self.method.trains else 0)
        before = 0
        for phase, epochs in enumerate(phases):
            if resume is not None and phase < resume.phase:
                continue
            before = before if resume is None else resume.before
            place = Place(phase, epochs, before, sum(phases[phase + 1 :]))
            self.stored = {place: known for place, known in self.stored.items() if place[1] != "best"}
            with self.model.turn:
                if resume is not None:
                    resume.refill(self.method)
                standing = self.method.begin_phase(phase)
                fit = Fit(self.method, self._optimizer, place, standing, train, self.batch_size, self.seed, self.engine)
                self.method.refuse_undeclared()
                self._fit = fit
                if resume is not None:
                    resume.fill(fit)
                    resume = None
            if self._optimizer is not None:
                self.trained_with = type(fit.stepper.optimizer).__name__
            try:
                while not fit.over:
                    done = yield from fit.run_epoch(task.name, valid)
                    if on_epoch is not None:
                        on_epoch(done)
            except BaseException:
                with self.model.turn:
                    fit.stepper.hold()  # Ctrl-C may have come between the optimiser and the lock
                raise
            with self.model.turn, self._noise(self.method.task, 1, phase), self.model.precision.products():
                fit.restore()
                self.method.end_phase(phase, train, fit.standing)
            before += fit.epoch

    def _noise(self, *where: int) -> AbstractContextManager[None]:
        """Make what a method draws between epochs a function of the seed and the place."""
        return noise(self.seed, "method", *where, device=self.device)

    def _refuse_if_broken(self) -> None:
        if self._ending is not None:
            raise HatrackError(
                f"this learner was stopped while it finished task {self._ending!r}, and is in no state to go on; give "
                f"the task up with learner.abandon(), or load the last one saved."
            )

    def _refuse_if_learning(self) -> None:
        if self._learning is not None:
            raise HatrackError(f"task {self._learning[0]!r} is being learned; wait for its end, or stop it first.")

    def _end(self, task: Task, train: Feed, index: int) -> None:
        self._ending = task.name
        with self._noise(index, 2), self.model.precision.products():
            self.method.finish(train)
        self._agree()
        self._fit = None
        use = self.method.use(index)
        if use is not None:
            self.vault.add(dict(self.model.net.named_parameters()), use)
        taken = taken_weights(self.method)
        if taken is not None:
            self.capacities.append(taken)
        own = None if task.probes is None else (fingerprint(task.probes), self._prepared(task.probes, index))
        self.probes.append(proof.witness(self.method, index, self.tasks[index], self._drawn(index), own))
        self._ending = None

    def _drawn(self, task: int) -> Tensor:
        return self.tasks[task].drawn(self.seed, task, self.device)

    def _prepared(self, x: Tensor, task: int) -> Tensor:
        return self.tasks[task].inputs.on(self.device)(x.to(self.device))

    def _agree(self) -> None:
        """Let all processes hold what the first one found of the task."""
        place, model = crew(), self.model
        if place is None:
            return
        own = [tensor for tensors in model.private for tensor in tensors.values()]
        heads = [p for head in model.heads for p in head.parameters()]
        state = self.method.state()
        place.agree([*model.tensors().values(), *heads, *own, *state.values()], self.device)
        self.method.load_state(state, self.finished + 1, self.device)

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
    def predict(self, x: Tensor | np.ndarray[Any, Any], task: int | str) -> Tensor:
        """Return the logits of raw inputs, prepared as the task's own were; task by name or number.

        One sample without a batch axis is a batch of one.
        """
        index = self.index(task)
        given, learned, kind = as_inputs(x), self.tasks[index], self.tasks[index].kind
        objection = kind.objection(given)
        if objection is not None:
            raise HatrackError(f"task {learned.name!r}: {objection}.")
        raw = as_floats(given.to(self.device))
        if raw.shape == kind.shape:
            raw = raw[None]
        if raw.is_inference():  # forward() may write into its input, which is refused for such a tensor
            raw = raw.clone()
        try:
            return self.method.predict(learned.inputs.on(self.device)(raw), index)
        except (RuntimeError, ValueError, IndexError) as error:
            taken = torch.float32 if kind.dtype == torch.uint8 else kind.dtype
            if (raw.shape[1:], raw.dtype) != (kind.shape, taken):
                raise HatrackError(
                    f"task {learned.name!r} takes a batch of inputs of shape {kind.shape} and {taken}, got one of "
                    f"shape {tuple(given.shape)} and {given.dtype}."
                ) from error
            beyond = kind.beyond(given)
            if beyond is None:
                raise
            raise HatrackError(f"task {learned.name!r}: {beyond} ({str(error).splitlines()[0]}).") from error

    def evaluate(self, task: Task, learned: int | str) -> float:
        """Return the accuracy of a finished task, given by number or name, on the test samples of `task`.

        They stay on the device.
        """
        index = self.index(learned)
        if task.test is None:
            raise HatrackError(f"task {task.name!r} has no test part to evaluate on.")
        known = self._tests.get(index)
        if known is None or known[0] is not task:
            known = self._tests[index] = (
                task,
                Feed([Part(index, task.test, task.inputs, task.classes)], self.device, self.workers),
            )
        with undisturbed():
            self.model.refuse_altered()
            return accuracy(self.method, known[1], index)

    @_alone
    def verify(self, probes: Mapping[int | str, Any] | None = None) -> proof.Verification:
        """Recompute what every finished task gave and relies on, and compare bit by bit.

        `probes`: for tasks that were learned with probes of their own (see Task), these again, by number or name.
        """
        own: dict[int, Tensor] = {}
        for task, x in (probes or {}).items():
            index, given = self.index(task), as_inputs(x, f"the probes of task {task!r}")
            kept = self.probes[index].own
            if kept is None or fingerprint(given) != kept.digest:
                why = "was learned without probes of its own" if kept is None else "had others (their digests differ)"
                raise HatrackError(f"task {task!r} {why}; hand in what Task(..., probes=…) got, or nothing.")
            own[index] = self._prepared(given, index)
        return proof.prove(self.method, self.tasks[: self.finished], self.probes, self.vault, self._drawn, own)

    # ---- what the masks look like

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
        self._refuse_if_broken()
        if len(self.tasks) > self.finished:
            raise HatrackError(
                f"a learner in the middle of a task ({self.tasks[-1].name!r}) cannot be copied; copy it when the task "
                f"is finished, or save it and load the copy from the folder."
            )
        made = object.__new__(type(self))
        memo[id(self)], memo[id(self._optimizer)] = made, self._optimizer
        with self.model.turn, undisturbed():
            self.model.refuse_altered()
            try:
                made.__dict__ |= {k: deepcopy(v, memo) for k, v in vars(self).items() if k not in ("_tests", "stored")}
            except (RuntimeError, TypeError) as error:
                raise HatrackError(f"this learner cannot be copied ({first_line(error)}); {BY_FOLDER}") from error
        made._tests, made.stored = {}, {}
        pairs = zip(_parts(self.model.net), _parts(made.model.net), strict=True)
        if any(memo.get(id(part)) is not copy for part, copy in pairs):  # what refers to the parts would miss them
            raise HatrackError(f"{type(self.model.net).__name__} copies itself in a way of its own; {BY_FOLDER}")
        return made

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise HatrackError(f"a learner cannot be pickled; {BY_FOLDER}")


def _refuse_unfit(net: nn.Module, method: Method, optimizer: OptimizerFactory | None) -> None:
    """Refuse what no learner can be made of, before anything is made or moved."""
    if not isinstance(net, nn.Module):
        raise HatrackError(
            f"net must be a torch module x → features, got {type(net).__name__}; hatrack.nets.build makes some."
        )
    if not any(True for _ in net.parameters()):
        raise HatrackError(f"{type(net).__name__} has no parameters to learn with.")
    if not isinstance(method, Method):
        raise HatrackError(
            f"method must be an object such as hatrack.HAT() or hatrack.methods.METHODS['ewc'](), got {method!r}."
        )
    if hasattr(method, "model"):  # it knows that learner's network and tasks, and would answer for both
        raise HatrackError(f"this {method.name} object belongs to another learner; make a new one.")
    if optimizer is not None and not callable(optimizer):
        raise HatrackError(
            f"optimizer must be a callable that takes parameters and returns a torch optimiser, such as "
            f"lambda p: torch.optim.Adam(p), got {type(optimizer).__name__}."
        )
    if crew() is not None and not method.shares_batches:
        raise HatrackError(
            f"{method.name} cannot be spread over several processes: its loss is not a mean over samples; "
            f"start one process."
        )


def _whole(name: str, value: object, least: int) -> int:
    """Return a setting that must be a whole number."""
    if not isinstance(value, Integral) or value < least:
        raise HatrackError(f"{name} must be a whole number, at least {least}, got {value!r}.")
    return int(value)


def _parts(net: nn.Module) -> list[nn.Module | nn.Parameter]:
    return [*net.modules(), *net.parameters()]


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
