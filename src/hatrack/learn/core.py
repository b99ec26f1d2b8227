"""What a learner and a loop of the user's stand on: one network, one method, and all that is known of finished tasks.

`Learner` adds a training loop of ours to it, `Hats` a face for any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from numbers import Integral
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

import torch
from torch import Tensor, fx, nn

from hatrack.data.feed import Feed
from hatrack.data.inputs import as_inputs
from hatrack.errors import HatrackError, unknown
from hatrack.learn.before import Before
from hatrack.learn.binned import used_fields
from hatrack.learn.capacity import taken_weights, used_weights
from hatrack.learn.copying import BY_FOLDER, copied
from hatrack.learn.fit import Fit, Resume
from hatrack.learn.growth import Growth
from hatrack.learn.history import TaskHistory
from hatrack.learn.last_layer import notice_last_layer
from hatrack.learn.learned import Learned
from hatrack.learn.machine.parallel import process_group, writes
from hatrack.learn.proof import verification as proof
from hatrack.learn.proof.seals import fingerprint
from hatrack.learn.refusals import refuse_shared_memory, refuse_unfit, whole
from hatrack.learn.seeds import generator, noise
from hatrack.measure.shares import Share, reuse
from hatrack.methods.base import Method
from hatrack.methods.parts.growing import Growing
from hatrack.modes import undisturbed
from hatrack.nets.model import Model
from hatrack.tree import mapped

if TYPE_CHECKING:
    from hatrack.life.forecast import Forecast
    from hatrack.life.grow import Grown

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

    # ---- a task begins and ends

    def _growing(self) -> list[Any]:
        """Return what every task adds to, less the network and the method."""
        return [self.tasks, self.probes, self.capacities, self.locked_values, self._history]

    def _drawing(self, *where: int) -> AbstractContextManager[None]:
        """Make what is drawn between epochs a function of the seed and the place."""
        return noise(self.seed, "method", self.finished, *where, device=self.device)

    def _refuse_name(self, name: str) -> None:
        """Refuse a second task of one name, and another one than that in progress."""
        self._refuse_if_broken()
        if name in {t.name for t in self.tasks[: self.finished]}:
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

    def _begin_method(self, feed: Feed) -> None:
        """Let the method prepare for the task."""
        with self._drawing(0):
            self.method.begin_task(self.finished, feed, generator(self.seed, "method", self.finished))

    def _finish_task(self, feed: Feed, own: Any = None) -> None:
        """Let the method consolidate, and note what the task relies on and what it answers: the proof begins here.

        `own`: probes of the user's, raw.
        """
        index, method = self.finished, self.method
        self._ending = self.tasks[index].name
        with self._drawing(2), self.model.precision.products():
            method.finish(feed)
        self._agree()
        use = method.use(index)
        if use is not None:
            self.locked_values.add(dict(self.model.net.named_parameters()), use)
        taken = taken_weights(method)
        if taken is not None:
            self.capacities.append(taken)
        given = None if own is None else (fingerprint(own), self._prepared(own, index))
        self.probes.append(proof.witness(method, index, self.tasks[index], self._drawn(index), given))
        self._history[index].accuracy = [None] * (index + 1)
        self._fit = self._ending = self._before = None

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

    @_alone
    def cut_out(self, task: int | str) -> fx.GraphModule:
        """Return a finished task as a plain module from raw inputs to answers, without the units that it has closed.

        Prepared inputs, network, gates, the task's own tensors and its head are in it, and nothing of hatrack. It has
        `task` and `classes` (their names, or numbers); `sites`: how many units are left of how many; `notes`: what
        could not be cut and why. Learned again, saved or asked after later tasks, it is the same byte by byte.
        """
        from hatrack.ship.cut_out import cut_out

        return cut_out(self, self.index(task))

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
        names = ", ".join(repr(t.name) for t in self.tasks[: self.finished]) or "none"
        kind, net = type(self).__name__, type(self.model.net).__name__
        return f"{kind}({net}, {self.method!r}, tasks={self.finished}: {names})"

    def _gates(self) -> list[Tensor] | None:
        gates = [self.method.unit_gates(t) for t in range(self.finished)]
        known = [g.float() for g in gates if g is not None]
        return known if known else None

    def masks(self) -> dict[str, Tensor] | None:
        """Return every finished task's gates as "<task>/<site>" → vector; None for methods without unit masks.

        Over the units of now: those that came after the task are off.
        """
        gates = self._gates()
        if gates is None:
            return None
        return {
            f"{t}/{site.name}": part.cpu().contiguous()
            for t, gate in enumerate(gates)
            for site, part in self.model.units.by_site(self.model.spread_units(t, gate))
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
