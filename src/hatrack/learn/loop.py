"""The training loop: task, phase, epoch, step, in the order in which they happen.

`learn_task` is all of it; what it calls stands below it. It is a generator only so that several learners can take
turns on one device (machine/side_by_side.py): whoever reads it may take every `yield` for nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import torch

from hatrack.data.feed import Feed, Part
from hatrack.data.kind import Kind, Kinds, seen
from hatrack.data.task import Task
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.learn.before import Before
from hatrack.learn.callbacks import tell
from hatrack.learn.capacity import check_free
from hatrack.learn.fit import Fit, Phase
from hatrack.learn.growth import room_made
from hatrack.learn.history import TaskHistory
from hatrack.learn.learned import Learned
from hatrack.learn.machine.parallel import process_group, require_joined
from hatrack.learn.machine.side_by_side import let_go
from hatrack.learn.refusals import refuse_stream, refuse_target
from hatrack.learn.trial import drawable, fitting, try_out, try_target, with_ids
from hatrack.targets import Classification, Target

if TYPE_CHECKING:
    from hatrack.learn.learner import Learner


def learn_task(learner: Learner, task: Task, callbacks: Sequence[object]) -> Generator[None, None, None]:
    """Learn a task, or be as before; one that is stopped (Ctrl-C) while it is trained stays in progress."""
    method, turn = learner.method, learner.model.turn
    task = with_ids(learner.model, task)
    data = gather(learner, task)
    with room_made(learner), all_or_nothing(learner, task):
        with turn:
            history = begin_task(learner, task, data.train)
        tell(callbacks, "on_begin", learner)
        began = monotonic() - history.seconds
        for phase in phases_left(learner):
            with turn:
                fit = begin_phase(learner, phase, data.train)
            with held(fit):
                while not (fit.over or stopping(learner)):
                    with fit.noise():
                        fit.begin_epoch()
                        while fit.engine.advance():
                            yield
                        epoch = fit.end_epoch(task.name, data.valid)
                    history.epochs.append(epoch)
                    history.seconds = monotonic() - began
                    tell(callbacks, "on_epoch", epoch)
            with turn, learner._drawing(1, phase.number), learner.model.precision.products():
                fit.restore()
                method.end_phase(phase.number, data.train, fit.schedule_state)
            del fit
        with turn:
            end_task(learner, task, data)
        history.seconds = monotonic() - began
        del data  # the device may need its room
        test_all(learner, history)
        tell(callbacks, "on_task", history)


class Data(NamedTuple):
    """What a task is learned from and validated on; `own` are the task's own parts of it."""

    train: Feed
    valid: dict[int, Feed]
    own: tuple[Part, Part]


def gather(learner: Learner, task: Task) -> Data:
    """Return the samples, older ones where the method goes on learning them; refuse what cannot be learned now."""
    require_joined()
    learner._refuse_name(task.name)
    learner.model.refuse_altered()
    index, samples = learner.finished, learner._samples
    refuse_stream(learner.method, task)
    part, held_out = samples.parts(task, index)
    if learner.method.needs_old_data and samples.tasks < index:
        raise HatrackError(
            f"{learner.method.name} needs the data of all {index} earlier tasks; call learner.remember(task) "
            f"for each of them first."
        )
    train = Feed([*samples.train, part], learner.device, learner.workers, training=True)
    valid = {p.task: Feed([p], learner.device, learner.workers, keep=p is held_out) for p in (*samples.valid, held_out)}
    return Data(train, valid, (part, held_out))


@contextmanager
def all_or_nothing(learner: Learner, task: Task) -> Iterator[None]:
    """Put the learner back to where it stands now if the task cannot be begun, or learning it fails."""
    index = learner.finished
    with learner.model.turn:
        before = Before(learner)
    if len(learner.tasks) == learner.finished:  # else the task goes on, and began earlier
        learner._before = before
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or (learner._fit is None and learner.finished == index):
            if isinstance(error, torch.OutOfMemoryError | MemoryError):
                let_go(error)
            learner._go_back(before, task.name)
        raise


@contextmanager
def held(fit: Fit) -> Iterator[None]:
    """Give locked entries their bits back whatever stops the training: it may come between optimiser and lock."""
    try:
        yield
    except BaseException:
        with fit.method.model.turn:
            fit.stepper.hold()
        raise


def begin_task(learner: Learner, task: Task, train: Feed) -> TaskHistory:
    """Try one batch of every part, add a head and the task's own tensors, and let the method prepare."""
    index, model, method = learner.finished, learner.model, learner.method
    with learner._drawing(0):
        features, first = try_out(model, task, index, learner.batch_size)
    if len(learner.tasks) == index:
        refuse_target(method, task.name, task.target)
        target = _placed(task, features, tuple(first.y.shape[1:]))
        try_target(task, target, features, first)
        if isinstance(target, Classification) and target.classes == 1:
            line = f"task {task.name!r} has one class: whatever is learned, its accuracy is 1."
            warnings.warn(HatrackWarning(line), stacklevel=2)
        learner._release_oldest()
        if model.remaining:  # what a task that goes on has taken already is its own
            check_free(method, task.name)
        learned = Learned(task.name, target, task.inputs, _seen(learner, task))
        drawn = learned.drawn(learner.seed, index, learner.device)
        with drawable(task):
            model.tried(drawn)  # else it would come to light after training
        model.meet(drawn)
        with fitting(task, drawn):
            learner._add_task(learned, features, TaskHistory.of(task))
    else:  # a loaded learner has it without what is the user's own
        learner.tasks[index] = replace(learner.tasks[index], target=learner.tasks[index].predicting(task.target))
        model.targets[index] = learner.tasks[index].target
    if not learner.tasks[index].kind.raw:  # from a save of version 0.1, which did not say
        learner.tasks[index] = replace(learner.tasks[index], kind=_seen(learner, task))
    learner._begin_method(train)
    history = learner._history[index]
    if learner._resume is None:  # also where it was stopped in this process: its phases begin anew
        history.epochs = []
    return history


def _placed(task: Task, features: tuple[int, ...], y: tuple[int, ...]) -> Target:
    try:
        return task.target.placed(features, y)
    except HatrackError as error:
        raise HatrackError(f"task {task.name!r}: {error}") from None


def _seen(learner: Learner, task: Task) -> Kind | Kinds:
    with learner._drawing(3):  # a Dataset may draw
        return seen(task.train)


def phases_left(learner: Learner) -> Iterator[Phase]:
    """Yield the phases of the task, less those that were over when it was interrupted."""
    method, resume = learner.method, learner._resume
    if learner._optimizer is None and learner.trained_with is not None and resume is None:
        line = f"this learner was trained with {learner.trained_with}; it goes on with {method.name}'s own optimiser"
        warnings.warn(HatrackWarning(f"{line}: to keep the other, load it with optimizer=…"), stacklevel=3)
        learner.trained_with = None
    chosen = learner._scheduler
    if isinstance(chosen, str) and learner.scheduled_with != chosen and resume is None:
        line = f"this learner's rates followed {learner.scheduled_with}; it goes on with {chosen!r}"
        warnings.warn(HatrackWarning(f"{line}: to keep the other, load it with scheduler=…"), stacklevel=3)
        learner.scheduled_with = chosen
    epochs = method.phases(learner.epochs if method.trains else 0)
    before = 0 if resume is None else resume.before
    for number in range(0 if resume is None else resume.phase, len(epochs)):
        yield Phase(number, epochs[number], before, sum(epochs[number + 1 :]))
        assert learner._fit is not None
        before += learner._fit.epoch


def stopping(learner: Learner) -> bool:
    """Whether somebody has called `learner.stop`, in any process; the task gets one epoch at least."""
    asked = learner._stop and len(learner._history[learner.finished].epochs) > 0
    group = process_group()
    if group is None:
        return asked
    found = torch.tensor(float(asked), device=learner.device)
    group.all_reduce([found])
    return bool(found)


def begin_phase(learner: Learner, phase: Phase, train: Feed) -> Fit:
    """Make optimiser, schedule and engine of a phase; where it was interrupted, bring them to where they stood."""
    method, resume = learner.method, learner._resume
    learner._resume = None
    learner.stored = {where: known for where, known in learner.stored.items() if where[1] != "best"}
    if resume is not None:
        resume.refill(method)
    state = method.begin_phase(phase.number)
    settings = learner.batch_size, learner.seed, learner.engine, learner._scheduler
    fit = Fit(method, learner._optimizer, phase, state, train, *settings)
    method.refuse_undeclared()
    learner._fit = fit
    if resume is not None:
        resume.fill(fit)
    if learner._optimizer is not None:
        learner.trained_with = type(fit.stepper.optimizer).__name__
    if not isinstance(learner._scheduler, str):
        learner.scheduled_with = fit.schedule.name
    return fit


def end_task(learner: Learner, task: Task, data: Data) -> None:
    """Let the task be a finished one, and keep of its samples what is asked for later."""
    index = learner.finished
    plain = data.own[0]._replace(augment=None)
    apart = data.train.streams or len(learner._samples.train) > 0
    train = Feed([plain], learner.device, learner.workers) if apart else data.train
    learner._finish_task(data.train, task.probes, (train, data.valid[index]))
    learner._samples.keep(*data.own)
    learner._tests |= test_part(task, index)


def test_part(task: Task, index: int) -> dict[int, Part]:
    """Return the task's test part by its number, if it has one."""
    return {} if task.test is None else {index: Part(index, task.test, task.inputs, task.target)}


def test_all(learner: Learner, history: TaskHistory) -> None:
    """Test all tasks so far whose test parts are at hand; where it is stopped, the task is learned all the same."""
    with learner._drawing(4):  # a Dataset may draw
        for index, part in learner._tests.items():
            if learner._current(index) != index:  # there is a newer version
                continue
            try:
                history.accuracy[index] = learner._accuracy(part)
            except torch.OutOfMemoryError:  # the samples of the others stay on the device while there is room
                learner._feeds.clear()
                torch.cuda.empty_cache()
                history.accuracy[index] = learner._accuracy(part)
