"""What a learner and a loop of the user's stand on: one network, one method, and all that is known of finished tasks.

`Learner` adds a training loop of ours to it, `Hats` a face for any other.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import wraps
from numbers import Integral
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, overload

import torch
from torch import Tensor, fx, nn

from hatrack.data.feed import Feed
from hatrack.data.inputs import as_inputs
from hatrack.errors import HatrackError, HatrackWarning, unknown
from hatrack.learn.before import Before
from hatrack.learn.binned import used_fields
from hatrack.learn.capacity import taken_weights, used_weights
from hatrack.learn.copying import BY_FOLDER, copied
from hatrack.learn.fit import Fit, Resume, evaluation_batch
from hatrack.learn.growth import Growth
from hatrack.learn.history import TaskHistory
from hatrack.learn.last_layer import notice_last_layer
from hatrack.learn.learned import Gone, Learned
from hatrack.learn.machine.parallel import process_group, writes
from hatrack.learn.proof import verification as proof
from hatrack.learn.proof.seals import fingerprint
from hatrack.learn.refusals import refuse_shared_memory, refuse_unfit, whole
from hatrack.learn.seeds import generator, noise
from hatrack.learn.which.answer import FALSE_ALARMS, Answer, answered
from hatrack.learn.which.scores import DEFAULT
from hatrack.learn.which.statistics import statistics
from hatrack.measure.shares import Share, reuse
from hatrack.methods.base import Method
from hatrack.methods.parts.growing import Growing
from hatrack.modes import undisturbed
from hatrack.nets.model import Model
from hatrack.tree import mapped

if TYPE_CHECKING:
    from hatrack.life.forecast import Forecast
    from hatrack.life.grow import Grown
    from hatrack.life.release import Released
    from hatrack.ship.export.export import Exported

P = ParamSpec("P")
R = TypeVar("R")


def _alone(ask: Callable[Concatenate[Core, P], R]) -> Callable[Concatenate[Core, P], R]:
    """Let a question have the network to itself between two steps of whoever trains it, whatever the caller does."""

    @wraps(ask)
    def asked(core: Core, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with core.model.alone(), core._settled(), undisturbed():
            core.model.refuse_altered()
            return ask(core, *args, **kwargs)

    return asked


class Core:
    """A network under a method, and its tasks: finished ones, and the one in progress."""

    def __init__(
        self,
        net: nn.Module,
        method: Method,
        *,
        features: str | int | Callable[..., Tensor] | None = None,
        epochs: int = 200,
        batch_size: int = 64,
        seed: int = 0,
        device: str | torch.device = "auto",
        precision: str = "tf32",
    ) -> None:
        refuse_unfit(net, method)
        self.method = method
        self.epochs = whole("epochs", epochs, least=1)
        self.batch_size = whole("batch_size", batch_size, least=1)
        self.seed = whole("seed", seed, least=0)
        self.device = pick_device(device)
        with undisturbed():
            self.model = Model(net, self.device, precision, features)
            refuse_shared_memory(net)  # that of where it is now
            self.method.attach(self.model)
        self.tasks: list[Learned] = []  # the task in progress included
        self.events: list[dict[str, Any]] = []  # what has become of tasks since they were learned, in order
        self.versions: dict[int, int] = {}  # numbers of older versions of tasks, and of those that they were updated to
        self._pending: int | None = None  # the task that is to be updated by the one that begins
        self.probes: list[proof.Probe] = []
        self.capacities: list[Share] = []
        self.growths: list[Growth] = []
        self.locked_values = proof.LockedValues()
        self.trained_with: str | None = None  # the kind of optimiser, where it is not the method's own
        self.scheduled_with: str | None = None  # the schedule's name, or the kind of scheduler that a callable made
        self._history: list[TaskHistory] = []  # the task in progress included
        self._fit: Fit | None = None
        self._resume: Resume | None = None
        self._ending: str | None = None  # the task that is being finished: until then, masks and probes do not agree
        self._before: Before | None = None  # what there was before the task in progress
        self._learning: tuple[str, int] | None = None  # the task that is being learned right now, and the thread
        self.stored: dict[tuple[Path, str], tuple[Any, dict[str, Any]]] = {}  # files already on disk

    @property
    def finished(self) -> int:
        """The number of tasks that were learned, released ones included: numbers of tasks are for life."""
        return len(self.probes)

    @property
    def released(self) -> tuple[int, ...]:
        """The numbers of the tasks that were released."""
        return tuple(sorted(self.model.released))

    @property
    def parameters_count(self) -> int:
        """The number of parameters that the answers of all tasks so far are computed with.

        The network, less what every task has a copy of; those copies; the heads; what the method adds. Masks and what
        only training needs (Fisher matrices, anchors, samples) are not counted.
        """
        model = self.model
        named = dict(model.net.named_parameters())
        kept = [model.private[task] for task in model.remaining]
        copies = [t for own in kept for name, t in own.items() if name in named]
        shared = [p for n, p in named.items() if not kept or any(n not in own for own in kept)]
        heads = [p for head in model.heads for p in head.parameters()]
        return sum(t.numel() for t in (*shared, *copies, *heads, *self.method.answering()))

    @property
    def learnable_count(self) -> int:
        """The number of parameters that training moved, those of all tasks together, masks among them."""
        return self.parameters_count + self.method.learned_besides(len(self.model.remaining))

    @property
    def history(self) -> list[TaskHistory]:
        """What `learn` has returned for every finished task."""
        return self._history[: self.finished]

    def matrix(self) -> list[list[float | None]]:
        """Return the scores so far (accuracies, of classes): row t holds, after task t, those on tasks 1 to t.

        None where a task has no test part, was released, or was not at hand: a loaded learner has those of `remember`.
        """
        return [list(known.accuracy) for known in self.history]

    # ---- a task begins and ends

    def _growing(self) -> list[Any]:
        """Return what every task adds to, less the network and the method."""
        held = [self.tasks, self.probes, self.capacities, self.locked_values, self._history]
        return [*held, self.events, self.versions]

    def _drawing(self, *where: int) -> AbstractContextManager[None]:
        """Make what is drawn between epochs a function of the seed and the place."""
        return noise(self.seed, "method", self.finished, *where, device=self.device)

    def _refuse_name(self, name: str) -> None:
        """Refuse a second task of one name, and another one than that in progress."""
        self._refuse_if_broken()
        if self._pending is None and self._updating is not None and name in self._numbers():
            raise HatrackError(
                f"task {name!r} is being updated; go on by learner.update, or give it up with abandon()."
            )
        if self._pending is None and name in self._numbers():
            raise HatrackError(f"a task named {name!r} is learned already; give each task a name of its own.")
        if len(self.tasks) > self.finished and self.tasks[self.finished].name != name:
            raise HatrackError(
                f"the learner was interrupted in task {self.tasks[self.finished].name!r}; go on with that one before "
                f"{name!r}, or give it up with learner.abandon()."
            )

    def _add_task(self, learned: Learned, features: tuple[int, ...], history: TaskHistory) -> None:
        """Give a task its head, for features of this shape, and the tensors that are its own."""
        if not self.tasks:
            notice_last_layer(self.model, self.model.example, learned.name, learned.classes)
        head = generator(self.seed, "head", self.finished)
        self.model.add_task(learned.target, head, self.method.private(), features)
        self.tasks.append(learned)
        self._history.append(history)
        if self._pending is not None:
            from hatrack.life.update import take_up

            take_up(self, self._pending, self.finished)

    def _begin_method(self, feed: Feed) -> None:
        """Let the method prepare for the task."""
        with self._drawing(0):
            self.method.begin_task(self.finished, feed, generator(self.seed, "method", self.finished))
            if self._updating is not None:
                self.method.go_on_from(self._updating)

    def _finish_task(self, feed: Feed, own: Any = None, known_by: tuple[Feed, Feed] | None = None) -> None:
        """Let the method consolidate, and note what the task relies on and what it answers: the proof begins here.

        `own`: probes of the user's, raw; `known_by`: the task's own samples for training and held out.
        """
        index, method = self.finished, self.method
        self._ending = self.tasks[index].name
        with self._drawing(2), self.model.precision.products():
            method.finish(feed)
        self._agree()
        use, older = method.use(index), self._updating
        if older is not None:  # what it relied on has moved
            self.locked_values.only(method.use(task) or {} for task in self.model.remaining if task != index)
        if use is not None:
            self.locked_values.add(dict(self.model.net.named_parameters()), use)
        taken = taken_weights(method)
        if taken is not None:
            self.capacities.append(taken)
        if known_by is not None:
            self._describe(index, *known_by)
        given = None if own is None else (fingerprint(own), self._prepared(own, index))
        self.probes.append(proof.witness(method, index, self.tasks[index], self._drawn(index), given))
        self._history[index].accuracy = [None] * (index + 1)
        if older is not None:
            from hatrack.life.update import reseal

            reseal(self, older)
        self._fit = self._ending = self._before = None

    def _describe(self, index: int, train: Feed, held_out: Feed) -> None:
        """Note by what the task's samples are known when nobody names it."""
        learned, size = self.tasks[index], evaluation_batch(train, self.device)
        with self._drawing(5):  # a Dataset may draw
            found = statistics(self.method, index, learned.target, train, held_out, size)
        group = process_group()
        if group is not None and found is not None:
            group.broadcast(list(found.tensors().values()), self.device)
        self.tasks[index] = replace(learned, which=found)

    def _agree(self) -> None:
        """Let all processes hold what the first one found of the task."""
        group, model, method = process_group(), self.model, self.method
        if group is None:
            return
        own = [tensor for tensors in model.private for tensor in tensors.values()]
        heads = [p for head in model.heads for p in head.parameters()]
        state = method.state()
        group.broadcast([*model.tensors().values(), *heads, *own, *state.values()], self.device)
        method.load_state(state, self.finished + 1, self.device)

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

    def release(self, task: int | str | None = None, *, oldest: bool = False) -> Released:
        """Give up a finished task, by number or name, or the oldest there is: what it alone used is free again.

        Its head, gates, norms, probes and seals are gone, what no other task uses is drawn anew, and all others are
        compared bit by bit. What others use of it stays, which the answer lists. Numbers stay: task 2 is still task 2.
        """
        from hatrack.life.release import release

        return release(self, task, oldest)

    def revert(self, task: int | str) -> proof.Verification:
        """Go back to the version of a task from before its last update, bit by bit; return the verdict on all tasks.

        As long as no other task relies on an entry that the update has moved.
        """
        from hatrack.life.update import revert

        return revert(self, task)

    def _release_oldest(self) -> None:
        """Release the oldest tasks where the method keeps so many only, before another begins."""
        from hatrack.life.release import let_go

        if self._pending is not None:
            return
        old = list(self._numbers().values())[: -(self.method.most_tasks - 1) or None] if self.method.most_tasks else []
        for index in old:
            line = f"{let_go(self, index)} (keep_tasks = {self.method.most_tasks})"
            warnings.warn(HatrackWarning(line), stacklevel=2)
        if old:  # from here on the task can be given up, but what was released is gone from all that is saved
            self._before = None
            self._before = Before(self)

    def _dismiss(self, index: int) -> None:
        """Let go of all that is known of a task but its name, and what it was to later ones."""
        known = self._history[index]
        self.tasks[index], self.probes[index] = Gone(known.name), proof.Probe(torch.empty(0), {})
        self._history[index] = TaskHistory(known.name, accuracy=known.accuracy, score=known.score, released=True)
        for t in range(index, len(self._history)):
            row = list(self._history[t].accuracy)
            self._history[t] = replace(self._history[t], accuracy=[*row[:index], None, *row[index + 1 :]])
        self.stored.clear()  # its keys do not tell that something is gone

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
        numbers, count = self._numbers(), self.finished
        if not count:
            raise HatrackError(f"there is no task {task!r}: none is learned yet; call learner.learn(task) first.")
        if isinstance(task, str):
            if task not in numbers:
                self._refuse_released(task)
                raise unknown("task", task, numbers)
            return numbers[task]
        if not isinstance(task, Integral):
            raise HatrackError(f"a task is given by its number or its name, got {task!r}.")
        if not 0 <= task < count:
            raise HatrackError(f"there is no task number {task}; {count} are learned (0 to {count - 1}).")
        task = self._current(int(task))
        if task in self.model.released:
            self._refuse_released(self.tasks[task].name, task)
        return task

    def _numbers(self) -> dict[str, int]:
        """Return the numbers of the finished tasks that are there, by name."""
        there = (i for i in range(self.finished) if i not in self.model.released and self._current(i) == i)
        return {self.tasks[i].name: i for i in there}

    def _current(self, task: int) -> int:
        """Return the number of the latest version of a task that is given by that of any."""
        while self.versions.get(task, self.finished) < self.finished:
            task = self.versions[task]
        return task

    @property
    def _updating(self) -> int | None:
        """The number of the version that the task in progress is to replace, if it is to replace one."""
        in_progress = len(self.tasks) > self.finished or self._ending is not None
        return next((old for old, new in self.versions.items() if in_progress and new == len(self.tasks) - 1), None)

    def _compared(self) -> list[int]:
        """Return the numbers of the tasks that a verdict is about, older versions that are kept among them."""
        return [task for task in range(self.finished) if task not in self.model.released]

    @property
    def older(self) -> tuple[int, ...]:
        """The numbers of versions that are kept, and that an update has replaced."""
        return tuple(task for task in self._compared() if self._current(task) != task)

    def _label(self, task: int) -> str:
        """Return the name of a task, and what has become of it."""
        more = " (released)" if task in self.model.released else " (older version)" if task in self.older else ""
        return self.tasks[task].name + more

    def _refuse_released(self, name: str, number: int | None = None) -> None:
        """Refuse a task that was released; nothing where none of that name was."""
        where = [t for t in self.released if self.tasks[t].name == name]
        if not where:
            return
        again = self._numbers().get(name)
        new = (
            "learn it again to ask it" if again is None else f"one of that name was learned since, task number {again}"
        )
        raise HatrackError(f"task {name!r} (number {where[-1] if number is None else number}) was released; {new}.")

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Let the device finish what another thread, with a stream of its own, has it train; and the other way."""
        elsewhere = self._learning is not None and self._learning[1] != get_ident() and self.device.type == "cuda"
        if elsewhere:
            torch.cuda.synchronize(self.device)
        yield
        if elsewhere:
            torch.cuda.synchronize(self.device)

    @overload
    def predict(self, x: Any, task: int | str) -> Tensor: ...
    @overload
    def predict(
        self, x: Any, task: None = None, *, score: str = DEFAULT, false_alarms: float = FALSE_ALARMS
    ) -> Answer: ...
    def predict(
        self, x: Any, task: int | str | None = None, *, score: str = DEFAULT, false_alarms: float = FALSE_ALARMS
    ) -> Tensor | Answer:
        """Return the logits of raw inputs, prepared as the task's own were; task by name or number.

        Of a regression, figures in the unit of its targets. One sample without a batch axis is a batch of one.

        Without a task: for each sample the task that fits best by `score` (docs/which-task.md), its label, and whether
        it is known at all; so near a task that this share of its own samples is not (`false_alarms`).
        """
        return self._find(x, score, false_alarms) if task is None else self._answer(x, task)

    @_alone
    @torch.no_grad()
    def _find(self, x: Any, score: str, false_alarms: float) -> Answer:
        return answered(self, x, score, false_alarms)

    @_alone
    @torch.no_grad()
    def _answer(self, x: Any, task: int | str) -> Tensor:
        index = self.index(task)
        given, learned = as_inputs(x), self.tasks[index]
        raw = learned.batch(given, self.device)
        with learned.fitting(given, raw):
            return learned.target.answer(self.method.predict(learned.inputs.on(self.device)(raw), index))

    def decode(self, answer: Tensor, task: int | str) -> Any:
        """Return what `predict` gave in the words of the task: its classes' names, or their numbers."""
        return self.tasks[self.index(task)].target.decode(answer)

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
        tasks = self.tasks[: self.finished]
        for t in self.older:
            tasks[t] = replace(tasks[t], name=self._label(t))
        return proof.prove(self.method, tasks, self.probes, self.locked_values, self._drawn, own)

    @_alone
    def cut_out(self, task: int | str) -> fx.GraphModule:
        """Return a finished task as a plain module from raw inputs to answers, without the units that it has closed.

        Prepared inputs, network, gates, the task's own tensors and its head are in it, and nothing of hatrack. It has
        `task` and `classes` (their names, or numbers); `sites`: how many units are left of how many; `notes`: what
        could not be cut and why. Learned again, saved or asked after later tasks, it is the same byte by byte.
        """
        from hatrack.ship.cut_out import cut_out

        return cut_out(self, self.index(task))

    def export(
        self, task: int | str, folder: str | Path, *, format: str = "onnx", int8: bool = False, samples: Any = None
    ) -> Exported:
        """Write a finished task into a folder of its own within `folder`, as files that run without hatrack.

        Every file is loaded again and held against `predict` before it is there; see docs/shipping.md.

        format   "onnx", "pt2" (torch.export), "torch" (a Python file and safetensors), or several with commas
        int8     the ONNX file in int8 as well, judged by its score
        samples  a Task, whose test part is taken (and whose training part finds the ranges of int8), or (inputs,
                 targets); without them those that were tested when the task was learned, else inputs from the seed
        """
        from hatrack.ship.export.export import export

        return export(self, self.index(task), Path(folder), format, int8, samples)

    @_alone
    def certify(
        self,
        path: str | Path,
        *,
        previous: str | Path | None = None,
        key: str | Path | None = None,
        exports: str | Path | None = None,
    ) -> Path:
        """Write digests of all that finished tasks are answered from, for a stranger to check (docs/certificate.md).

        They are verified first. `previous`: the certificate that this one is to follow; `key`: a private ed25519 key in
        PEM, which signs it; `exports`: the folder with the tasks' exports, whose files are to be in it.
        """
        from hatrack.ship.certificate.certify import certify

        before, signed_by, files = (None if given is None else Path(given) for given in (previous, key, exports))
        return certify(self, Path(path), before, signed_by, files)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
        license: str | None = None,
    ) -> str:
        """Push what `save` writes to the Hugging Face Hub, with masks, certificate and a card; return the commit's URL.

        No sample is in it. `private`: of a repository that is made, and refused of one that is public already;
        `revision`: a branch, made where there is none; `license`: as the Hub names it. See docs/shipping.md.
        """
        from hatrack.ship.hub import push

        return push(self, repo_id, private, token, revision, commit_message, license)

    def grow(self, more: float | Mapping[str, int]) -> Grown:
        """Widen the network between two tasks: 0.25 for a quarter more units at every site, or units by site.

        The network is widened in place: what you hold of it (the module, its parameters) stays what it is. What cannot
        be widened is named in the answer. Finished tasks answer bit for bit as before, at the width of then.
        """
        from hatrack.life.grow import grow

        return grow(self, more)

    @_alone
    def forecast(self, grow: float = 0.25) -> Forecast:
        """Return how many more tasks of the size seen so far fit, and how many if the network grew by so much now."""
        from hatrack.life.forecast import forecast

        return forecast(self, grow)

    def _make_room(self) -> Callable[[], None] | None:
        """Let the network grow where the method wants it to; return what undoes it, None where nothing is done."""
        if not (isinstance(self.method, Growing) and self.method.grow and self.finished):
            return None
        from hatrack.life.grow import make_room

        return make_room(self)

    # ---- what it looks like

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self._numbers())) or "none"
        kind, net = type(self).__name__, type(self.model.net).__name__
        gone = f"; released: {len(self.released)}" if self.released else ""
        return f"{kind}({net}, {self.method!r}, tasks={len(self._numbers())}: {names}{gone})"

    def _gates(self) -> dict[int, Tensor]:
        gates = {t: self.method.unit_gates(t) for t in self._numbers().values()}
        return {t: gate.float() for t, gate in gates.items() if gate is not None}

    def masks(self) -> dict[str, Tensor] | None:
        """Return every finished task's gates as "<task>/<site>" → vector; None for methods without unit masks.

        Over the units of now: those that came after the task are off.
        """
        found = {
            f"{t}/{site.name}": part.cpu().contiguous()
            for t, gate in self._gates().items()
            for site, part in self.model.units.by_site(self.model.spread_units(t, gate))
        }
        return found or None

    def weight_masks(self) -> dict[str, Tensor] | None:
        """Return how much each finished task uses of the weights, binned (see binned.py), where there are no gates."""
        return None if self._gates() else used_fields(self.method, self._numbers().values())

    def capacity(self) -> list[Share] | None:
        """Return, after each task, the share of weights taken, in all and layer by layer; the last as it is now."""
        return self.capacities or None

    def reuse(self) -> list[list[float | None]] | None:
        """Return the share of task i's weights that each later task j uses again."""
        gone = self.model.released
        used = [{} if t in gone else used_weights(self.method, t) for t in range(self.finished)]
        known = [u for u in used if u is not None]
        return reuse(known) if known else None

    def kept_bytes(self) -> int:
        """Return how much the method stores for finished tasks besides network and heads.

        Masks, importances, own weights, chosen samples. Not counted: the data of old tasks, where a method is handed
        them again.
        """
        held = (*self.model.private, *self.model.copies.values())
        own = [tensor for tensors in held for tensor in tensors.values()]
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Core:
        """Return one that goes its own way from here; samples, which never change, are shared."""
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
