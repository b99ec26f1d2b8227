"""The learner: one network, one method, an open-ended list of tasks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hatrack.data.feed import Feed, Part
from hatrack.data.task import Inputs, Task, as_floats, as_inputs
from hatrack.errors import HatrackError, HatrackWarning, unknown
from hatrack.learn import proof
from hatrack.learn.capacity import check_free, taken_weights, used_weights
from hatrack.learn.engine import resolve_engine
from hatrack.learn.fit import Epoch, Fit, Place, Resume, accuracy
from hatrack.learn.parallel import crew, require_joined, writes
from hatrack.learn.samples import Samples
from hatrack.learn.seeds import generator, noise
from hatrack.learn.step import OptimizerFactory
from hatrack.measure.shares import Share, reuse
from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.nets.model import Model


@dataclass(frozen=True)
class Learned:
    """What the learner remembers of a task."""

    name: str
    classes: int
    inputs: Inputs


class Learner:
    """Teaches `net` (any module x → features) one task after another.

    method      hatrack.HAT() without one; a method object serves one learner only
    optimizer   None for the method's own (plain SGD at its lr), or a callable parameters → torch optimiser; a fresh
                one is made for every task, so that no momentum leaks from one task into the next. It must hold all
                that it is given (heads and gates among it) and nothing else; freeze weights that are not to move
    epochs      at most so many a task; the patience schedule usually stops earlier
    batch_size  samples a step; a last batch of one is left out of its epoch where batch norm refuses it (shortest.py)
    engine      how steps are carried out: "eager", "compiled", "graph" (CUDA), or "auto"; see engine.py
    precision   of the layers' arithmetic: "float32", "tf32" (differs on CUDA only) or "bf16"; see precision.py
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
        return sum(t.numel() for t in (*shared, *copies, *heads, *self.method.added_parameters()))

    def learn(self, task: Task, on_epoch: Callable[[Epoch], None] | None = None) -> None:
        """Learn one more task (or go on with the one that a loaded learner was interrupted in)."""
        for _ in self.learning(task, on_epoch):
            pass

    def learning(self, task: Task, on_epoch: Callable[[Epoch], None] | None = None) -> Iterator[None]:
        """Do what `learn` does bit by bit: every pause is a moment at which another learner may have its turn."""
        if not isinstance(task, Task):
            raise HatrackError(f"learn takes a task, hatrack.Task(name, train=(x, y)), got {type(task).__name__}.")
        self._refuse_if_broken()
        require_joined()
        index = self.finished
        _refuse_uneven(task, self.device)
        part, held = self._samples.parts(task, index)
        if self.method.needs_old_data and self._samples.tasks < index:
            raise HatrackError(
                f"{self.method.name} needs the data of all {index} earlier tasks; call learner.remember(task) "
                f"for each of them first."
            )
        train = Feed([*self._samples.train, part], self.device, self.workers)
        valid = {p.task: Feed([p], self.device, self.workers) for p in (*self._samples.valid, held)}
        if index and len(self.tasks) == index:  # what a task that goes on has taken already is its own
            check_free(self.method, task.name)
        self._begin(task, index, train)
        yield from self._run(task, train, valid, on_epoch)
        self._end(task, train, index)
        self._samples.keep(part, held)

    def remember(self, task: Task) -> None:
        """Hand a loaded learner the data of an earlier task, for methods that need it."""
        index = self._samples.tasks
        if index >= self.finished or self.tasks[index].name != task.name:
            raise HatrackError(f"task {task.name!r} is not the next one to remember (number {index}).")
        self._samples.keep(*self._samples.parts(task, index))

    def _begin(self, task: Task, index: int, train: Feed) -> None:
        taken = {t.name for t in self.tasks[:index]}
        if task.name in taken:
            raise HatrackError(f"a task named {task.name!r} is learned already; give each task a name of its own.")
        if len(self.tasks) > index:
            if self.tasks[index].name != task.name:
                raise HatrackError(
                    f"the learner was interrupted in task {self.tasks[index].name!r}; go on with that one before "
                    f"{task.name!r}."
                )
        else:
            if task.classes == 1:
                line = f"task {task.name!r} has one class: whatever is learned, its accuracy is 1."
                warnings.warn(HatrackWarning(line), stacklevel=2)
            self.model.meet(task.inputs.on(self.device)(task.train.first(1).to(self.device)))
            self._add_head(task, index)
            self.tasks.append(Learned(task.name, task.classes, task.inputs))
        with self._noise(index, 0):
            self.method.begin_task(index, train, generator(self.seed, "method", index))

    def _add_head(self, task: Task, index: int) -> None:
        try:
            self.model.add_task(task.classes, generator(self.seed, "head", index), self.method.private())
        except (HatrackError, torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except Exception as error:
            example = self.model.example
            if index == 0:
                self.model.example = None  # it is no example of what the network takes
            shape = "" if example is None else f" (of shape {tuple(example.shape[1:])}, {example.dtype})"
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise HatrackError(f"the network cannot take the inputs of task {task.name!r}{shape}: {why}") from error

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
            self.method.begin_phase(phase)
            place = Place(phase, epochs, before, sum(phases[phase + 1 :]))
            self.stored = {place: known for place, known in self.stored.items() if place[1] != "best"}
            fit = self._fit = Fit(self.method, self._optimizer, place, train, self.batch_size, self.seed, self.engine)
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
                if self.method.lock is not None:  # Ctrl-C may have come between the optimiser and the lock
                    self.method.lock.after_step()
                raise
            fit.restore()
            self.method.note_schedule(fit.schedule.lr, fit.schedule.best, fit.schedule.stalled)
            with self._noise(self.method.task, 1, phase), self.model.precision.products():
                self.method.end_phase(phase, train)
            before += fit.epoch

    def _noise(self, *where: int) -> AbstractContextManager[None]:
        """Make what a method draws between epochs a function of the seed and the place."""
        return noise(self.seed, "method", *where, device=self.device)

    def _refuse_if_broken(self) -> None:
        if self._ending is not None:
            raise HatrackError(
                f"this learner was stopped while it finished task {self._ending!r}, and is in no state to go on; load "
                f"the last one saved."
            )

    def _end(self, task: Task, train: Feed, index: int) -> None:
        self._ending = task.name
        with self._noise(index, 2), self.model.precision.products():
            self.method.end_task(train)
        self._agree()
        self._fit = None
        use = self.method.use(index)
        if use is not None:
            self.vault.add(dict(self.model.net.named_parameters()), use)
        taken = taken_weights(self.method)
        if taken is not None:
            self.capacities.append(taken)
        held = task.test if task.test is not None else task.valid if task.valid is not None else task.train
        x = task.inputs.on(self.device)(held.first(proof.PROBES).to(self.device))
        # In the layout it will have when read from a file: strides decide which kernel runs, and so the last bits.
        x = x.clone(memory_format=torch.contiguous_format)
        logits = proof.probe_logits(self.method, x, index)
        self.probes.append(proof.Probe(x, logits, proof.environment(self.device)))
        self._ending = None

    def _agree(self) -> None:
        """Let all processes hold what the first one found of the task."""
        place, model = crew(), self.model
        if place is None:
            return
        own = [tensor for tensors in model.private for tensor in tensors.values()]
        heads = [p for head in model.heads for p in head.parameters()]
        state = self.method.state()
        place.agree([*model.tensors().values(), *heads, *own, *state.values()], self.device)
        self.method.load_state(state)

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

    @torch.no_grad()
    def predict(self, x: Tensor | np.ndarray[Any, Any], task: int | str) -> Tensor:
        """Return the logits of raw inputs, prepared as the task's own were; task by name or number."""
        index = self.index(task)
        self.model.net.eval()
        raw = as_floats(as_inputs(x).to(self.device))
        try:
            return self.method.predict(self.tasks[index].inputs.on(self.device)(raw), index)
        except (RuntimeError, ValueError, IndexError) as error:
            learned = self.probes[index].x
            if (raw.shape[1:], raw.dtype) == (learned.shape[1:], learned.dtype):
                raise
            raise HatrackError(
                f"task {self.tasks[index].name!r} takes a batch of inputs of shape {tuple(learned.shape[1:])} and "
                f"{learned.dtype}, got one of shape {tuple(raw.shape)} and {raw.dtype}."
            ) from error

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
        return accuracy(self.method, known[1], index)

    def verify(self) -> proof.Verification:
        """Recompute what every finished task gave and relies on, and compare bit by bit."""
        names = [t.name for t in self.tasks[: self.finished]]
        return proof.prove(self.method, names, self.probes, self.vault)

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
        from hatrack.learn.state import save

        self._refuse_if_broken()
        if writes():
            save(self, Path(folder))


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


def _refuse_uneven(task: Task, device: torch.device) -> None:
    """Look at one sample of each part: prepared, all must be alike, which would else come to light after training."""
    prepare = task.inputs.on(device)
    parts = {"training": task.train, "validation": task.valid, "test": task.test}
    first = {name: prepare(s.first(1).to(device)) for name, s in parts.items() if s is not None and len(s)}
    kinds = {name: f"{tuple(x.shape[1:])} {x.dtype}" for name, x in first.items()}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{name} inputs {kind}" for name, kind in kinds.items())
        raise HatrackError(f"task {task.name!r} has {said}; bring its parts to one shape and type.")


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
