"""Hats: the core for a loop of the user's.

    hats = hatrack.Hats(net, hatrack.HAT())
    hats.begin("a", Classification(10), steps=len(loader))
    optimizer = hats.guard(torch.optim.AdamW(hats.trainable()))
    for epoch in range(10):
        for x, y in loader:
            loss = cross_entropy(hats(x), y) + hats.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    hats.end()
    answers = hats.wear("a")(x)

What keeps old tasks as they are happens in the guarded optimiser's step: gradients are edited before it, whoever has
clipped, scaled or added them up; locked entries get their bits back after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, fx, nn
from torch.optim import Optimizer

from hatrack.data import kind as kinds
from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs, as_inputs
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.before import Before
from hatrack.learn.core import Core
from hatrack.learn.first_input import first_input
from hatrack.learn.groups import Groups, grouped
from hatrack.learn.growth import room_made
from hatrack.learn.guard import Guard
from hatrack.learn.history import TaskHistory
from hatrack.learn.learned import Learned
from hatrack.learn.machine.parallel import process_group
from hatrack.learn.proof.verification import Verification
from hatrack.learn.refusals import refuse_own_loop, refuse_target, refuse_unfit_optimizer, whole
from hatrack.learn.state import load
from hatrack.learn.trial import drawable, fitting
from hatrack.learn.which.answer import FALSE_ALARMS, Answer
from hatrack.learn.which.scores import DEFAULT
from hatrack.masks.trace import trace
from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.modes import undisturbed
from hatrack.targets import Target
from hatrack.tree import at, count, mapped, shapes

if TYPE_CHECKING:
    from hatrack.life.grow import Grown
    from hatrack.life.release import Released
    from hatrack.ship.export.export import Exported


class Hats(nn.Module):
    """A network under a method, as a module: `hats(x)` is the answer of the task in progress, or of the one worn.

    net, method, features, seed: as `hatrack.Learner` takes them. Move the network to its device before.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method | None = None,
        *,
        features: str | int | Callable[..., Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        method = method if method is not None else HAT()
        refuse_own_loop(method)
        first = next(net.parameters(), None) if isinstance(net, nn.Module) else None
        core = Core(net, method, features=features, seed=seed, device="cpu" if first is None else first.device)
        self._stand_on(core)

    def _stand_on(self, core: Core) -> None:
        super().__init__()
        self._core = core
        self.net = core.model.net
        self.heads = nn.ModuleList(core.model.heads)
        self._worn: int | None = None
        self._feed: Any = None  # the training samples of the task in progress, where they were handed in
        self._seen: list[Any] = []  # first inputs of the task in progress
        self._guarded: list[Optimizer] = []  # in the task in progress
        self._own: list[str] = []  # parameters that are registered here while it is learned
        self._steps = self._done = 0  # of an epoch; of guarded optimisers in this task
        self._guessed = False  # whether the unit map was traced with an input that nobody has given

    @classmethod
    def load(cls, folder: str | Path, net: nn.Module, **options: Any) -> Hats:
        """Return what `save` wrote, or a learner did, over a network of the same architecture; see `hatrack.load`."""
        core = load(folder, net, **options)
        if len(core.tasks) > core.finished:
            raise HatrackError(
                f"{folder} holds a learner in the middle of task {core.tasks[-1].name!r}; go on with it by "
                f"hatrack.load, or load one that was saved between tasks."
            )
        refuse_own_loop(core.method)
        hats = cls.__new__(cls)
        hats._stand_on(core)
        return hats

    @classmethod
    def from_pretrained(
        cls,
        repo_or_folder: str | Path,
        net: nn.Module,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        **options: Any,
    ) -> Hats:
        """Return what `push_to_hub` or `save` wrote, or a learner's did; see `Learner.from_pretrained`."""
        from hatrack.ship.hub import fetched

        return cls.load(fetched(repo_or_folder, revision, token), net, **options)

    # ---- a task

    def begin(self, name: str, target: Target, *, steps: int, example: Any = None, data: Any = None) -> Self:
        """Begin a task, which `end` finishes.

        target   what it predicts: hatrack.targets.Classification(10), …
        steps    of the optimiser in an epoch, len(loader) without accumulation: gates are annealed within each
        example  a batch of inputs; where the first task has none, one is made that fits the network's first layer
        data     the training samples (inputs, targets), or a Dataset, for methods that look at them once more when a
                 task begins or ends (Fisher matrices, importances, memories)
        """
        core, model = self._core, self._core.model
        if not isinstance(name, str) or not name:
            raise HatrackError(f"a task's name must be a text that is not empty, got {name!r}.")
        if not isinstance(target, Target):
            raise HatrackError(f"task {name!r}: target must be one of hatrack.targets, got {target!r}.")
        steps = whole("steps", steps, least=1)
        if len(core.tasks) > core.finished:
            raise HatrackError(f"task {core.tasks[-1].name!r} is in progress; end() it, or give it up with abandon().")
        core._refuse_name(name)
        model.refuse_altered()
        task = None if data is None else Task(name, data, target=target)
        target = target.without_data(f"task {name!r}") if task is None else task.target
        refuse_target(core.method, name, target)
        feed = _Absent(core.method) if task is None else Feed([_part(core, task)], core.device, training=True)
        with room_made(core):
            before = Before(core)
            core._before = before
            try:
                with undisturbed(), model.turn:
                    core._release_oldest()
                    self._begin(name, target, self._example(name, example, task), feed, steps)
            except BaseException:
                core._go_back(before, name)
                self._forget()
                raise
        for p in self.parameters():
            p.grad = None  # of the task before: a loop that clears gradients after its steps would add to them
        self._feed, self._steps, self._done, self._worn = feed, steps, 0, None
        self.train(self.training)
        return self

    def _example(self, name: str, given: Any, task: Task | None) -> Any:
        model = self._core.model
        if given is None and task is None and model.example is not None:
            return model.example
        self._guessed = given is None and task is None
        if self._guessed:
            return first_input(model, name)
        x = as_inputs(given, f"task {name!r}, example: inputs") if task is None else task.train.first(2)
        return Inputs().on(model.device)(mapped(lambda part: part.to(model.device), x))

    def _begin(self, name: str, target: Target, x: Any, feed: Feed, steps: int) -> None:
        core, model = self._core, self._core.model
        told = Learned(name, target, Inputs(), kinds.as_prepared(kinds.alike(lambda: [x])))
        with fitting(told, x):
            model.meet(x)
            features = model.try_out(x)
        if target.per_position and target.units_axis is None:
            raise HatrackError(f"task {name!r}: say where features of shape {features} have their units: axis=1 or -1.")
        with fitting(told, x):
            core._add_task(told, features, TaskHistory(name, score=target.judged().score))
        core._begin_method(feed)
        core.method.refuse_undeclared()
        core.method.clock.start(steps)
        self.heads.append(model.heads[-1])
        known = {id(p) for p in self.parameters()}
        for key, tensor in core.method.trainable().items():
            if id(tensor) not in known:
                self._own.append(key.replace(".", "_").replace("/", "_"))
                self._parameters[self._own[-1]] = tensor  # type: ignore[assignment] # a task's norms are plain tensors

    def trainable(self) -> Groups:
        """Return what the optimiser of the task in progress has to hold, as a list; groups of it by name.

        Those are "net", "gates", "heads" and "norms". Gates move by the method's own rule, at a rate that falls as the
        optimiser's does, unless they are given a group of their own.
        """
        self._refuse_idle()
        return grouped(self._core.method, listed=True)

    def guard(self, optimizer: Optimizer) -> Optimizer:
        """Let an optimiser's steps keep old tasks as they are, and return it; it may be wrapped by others after.

        See guard.py for what is done around each step. When the task has ended the optimiser makes no further one.
        """
        self._refuse_idle()
        method, task = self._core.method, self._core.finished
        name = self._core.tasks[task].name
        refuse_unfit_optimizer(optimizer, method.trainable())
        if any(optimizer is guarded for guarded in self._guarded):
            raise HatrackError(f"task {name!r}: this optimiser is guarded already; hats.guard is called once for each.")

        def refuse() -> None:
            if self._core.finished != task or len(self._core.tasks) == task:
                raise HatrackError(
                    f"this optimiser was guarded for task {name!r}, which is over; guard a new one for the next task."
                )

        if method.lock is not None:
            method.lock.trust(None)
        Guard(method, optimizer, name, refuse, self._count)
        self._guarded.append(optimizer)
        return optimizer

    def _count(self) -> None:
        """Let the clock of the epoch go on."""
        self._done += 1
        if self._done % self._steps:
            self._core.method.clock.advance()
        else:
            self._core.method.clock.start(self._steps)
            if self.training:
                self._core.method.begin_epoch()

    def penalty(self) -> Tensor:
        """Return what the method adds to the loss of the batch that was answered last; 0 in evaluation."""
        self._refuse_idle()
        if self.training and not self._seen:
            raise HatrackError(
                f"task {self._core.tasks[-1].name!r}: the penalty is that of the batch that was answered last in "
                f"training mode, and there was none; call hats(x) before hats.penalty()."
            )
        found = self._core.method.penalty() if self.training else None
        return torch.zeros((), device=self._core.device) if found is None else found

    def end(self) -> Self:
        """Finish the task in progress: gates are made 0 or 1, what it uses is locked, and its answers are noted."""
        self._refuse_idle()
        core, model = self._core, self._core.model
        learned = core.tasks[core.finished]
        model.refuse_altered()
        self._hold()
        if not self._done:
            raise HatrackError(
                f"task {learned.name!r} has seen no step of a guarded optimiser; train with hats.guard(optimizer), or "
                f"give the task up with abandon()."
            )
        written = {**model.tensors(), **core.method.trainable()}
        lost = next((name for name, tensor in written.items() if not bool(tensor.isfinite().all())), None)
        if lost is not None:  # 0 · NaN is NaN: not even a closed gate keeps it from old answers
            raise HatrackError(
                f"task {learned.name!r} has left numbers in {lost} that are not finite; give it up with abandon(), and "
                f"train with smaller steps."
            )
        kind = kinds.as_prepared(kinds.alike(lambda: self._seen))
        group = process_group()
        if group is not None:  # each has seen other batches
            group.broadcast(list(kinds.ranges(kind).values()), core.device)
        core.tasks[core.finished] = learned = replace(learned, kind=kind)
        with undisturbed(), model.turn:
            model.net.eval()
            drawn = core._drawn(core.finished)
            with drawable(learned):
                model.tried(drawn)
            core._finish_task(self._feed, known_by=None if isinstance(self._feed, _Absent) else (self._feed,) * 2)
            model.example = at(drawn, slice(1))  # no sample is kept
        self.train(self.training)
        self._forget()
        return self

    def abandon(self) -> Self:
        """Give up the task in progress: all is as it was before `begin`."""
        self._core.abandon()
        self._forget()
        return self

    def release(self, task: int | str | None = None, *, oldest: bool = False) -> Released:
        """Give up a finished task: what it alone used is free again; see `Learner.release`."""
        released = self._core.release(task, oldest=oldest)
        self._forget()
        return released

    def _forget(self) -> None:
        """Let go of what belonged to the task that was in progress."""
        for name in self._own:
            self._parameters.pop(name, None)
        self.heads = nn.ModuleList(self._core.model.heads)
        self._own, self._seen, self._guarded = [], [], []
        self._feed, self._worn, self._guessed = None, None, False

    def _refuse_idle(self) -> None:
        if len(self._core.tasks) == self._core.finished:
            raise HatrackError("no task is in progress; hats.begin(name, target, steps=…) begins one.")

    # ---- answers

    def wear(self, task: int | str | None) -> Self:
        """Answer as a finished task from now on, prepared and unrounded as `Learner.predict`; None: no longer."""
        self._hold()
        self._worn = None if task is None else self._core.index(task)
        return self

    def predict(
        self, x: Any, task: int | str | None = None, *, score: str = DEFAULT, false_alarms: float = FALSE_ALARMS
    ) -> Tensor | Answer:
        """Return a finished task's answers; without a task, find it for each sample: see `Learner.predict`.

        That takes tasks that were begun with `data`. What is none of these is then set by the training samples, which
        are nearer than new ones.
        """
        self._hold()
        return self._core._find(x, score, false_alarms) if task is None else self._core.predict(x, task)

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation, as the method trains the network."""
        super().train(mode)
        if mode and len(self._core.tasks) > self._core.finished:
            self._core.method.begin_epoch()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the answers to a batch, given as the network takes it: hats(x), hats(a, b) or hats(name=a)."""
        if bool(args) == bool(kwargs):
            raise HatrackError("a batch is given as hats(x), hats(a, b) or hats(name=a), by place or by name.")
        x = kwargs or (args if len(args) > 1 else args[0])
        core = self._core
        if self._worn is not None:
            return core.predict(x, self._worn)
        self._refuse_idle()
        task, method = core.finished, core.method
        x = core.tasks[task].inputs.on(core.device)(x)
        if self._guessed:
            self._confirm(x)
        with core.model.turn:
            with fitting(core.tasks[task], x):
                output = method.forward(x) if self.training else method.predict(x, task)
            if self.training:
                self._note(x)
        return core.tasks[task].target.answer(output)

    def _note(self, x: Any) -> None:
        seen = sum(map(count, self._seen))
        alike = not self._seen or shapes(x) == shapes(self._seen[0])  # texts may be of several lengths
        if seen < kinds.SOME and alike:
            self._seen.append(mapped(lambda part: part[: kinds.SOME - seen].detach().clone(), x))

    def _confirm(self, x: Any) -> None:
        """Trace the network with a real input: its units must be those that were found with a guessed one."""
        model = self._core.model
        example = mapped(lambda part: part[:1].detach().clone(), x)
        with undisturbed(), model.picked.as_output():
            found = trace(model.net, example)
        probe = torch.rand(found.size, generator=torch.Generator().manual_seed(0))
        same = found.size == model.units.size and torch.equal(found.flat_features, model.units.flat_features)
        if same:
            now, then = found.used(probe), model.units.used(probe)
            same = now.keys() == then.keys() and all(torch.equal(now[name], then[name]) for name in now)
        if not same:
            raise HatrackError(
                "the network has other units for these inputs than were found with a made one; give the first task a "
                "batch of its inputs: hats.begin(…, example=x)."
            )
        model.example, self._guessed = example, False

    # ---- what is known

    @property
    def finished(self) -> int:
        """The number of tasks that are learned."""
        return self._core.finished

    @torch.no_grad()
    def _hold(self) -> None:
        """Undo what the loop wrote into what finished tasks rely on: locked entries, their heads, frozen parameters.

        Only while a task is in progress: what is changed between tasks is for `verify` to find.
        """
        core = self._core
        if core._before is None or len(core.tasks) == core.finished:
            return
        if core.method.lock is not None:
            core.method.lock.restore()
        if core.method.promises():
            core._before.hold(core.model, core.method.trainable().values())

    def verify(self, **options: Any) -> Verification:
        """Compare all finished tasks bit by bit with what they were; see `Learner.verify`."""
        self._hold()
        return self._core.verify(**options)

    def save(self, folder: str | Path) -> None:
        """Write all finished tasks, to be loaded by `Hats.load` or `hatrack.load`; see `Learner.save`."""
        if len(self._core.tasks) > self._core.finished:
            raise HatrackError(
                f"task {self._core.tasks[-1].name!r} is in progress; end() it before hats.save, and keep what your "
                f"loop needs to go on by state_dict()."
            )
        self._core.save(folder)

    def grow(self, more: float | Mapping[str, int]) -> Grown:
        """Widen the network between two tasks, in place: see Learner.grow. Optimisers made before know it no more."""
        return self._core.grow(more)

    def cut_out(self, task: int | str) -> fx.GraphModule:
        """Return a finished task as a plain module without the units that it has closed; as a learner does."""
        return self._core.cut_out(task)

    def export(self, task: int | str, folder: str | Path, **options: Any) -> Exported:
        """Write a finished task as files that run without hatrack; as a learner does, with the same options."""
        return self._core.export(task, folder, **options)

    def certify(self, path: str | Path, **options: str | Path | None) -> Path:
        """Write digests of all that finished tasks are answered from; as a learner does, with the same options."""
        return self._core.certify(path, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Push what `save` writes to the Hugging Face Hub; as a learner does, with the same options."""
        return self._core.push_to_hub(repo_id, **options)

    def masks(self) -> dict[str, Tensor] | None:
        """Return every finished task's gates; see `Learner.masks`."""
        return self._core.masks()


def _part(core: Core, task: Task) -> Part:
    return Part(core.finished, task.train, task.inputs, task.target)


class _Absent(Feed):
    """Training samples that nobody has handed in."""

    def __init__(self, method: Method) -> None:
        self._method = method.name

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattribute__(name)
        raise HatrackError(
            f"{self._method} looks at the training samples when a task begins or ends; hand them in: "
            f"hats.begin(…, data=(x, y)), or a Dataset."
        )

    def __len__(self) -> int:
        return int(self.length)
