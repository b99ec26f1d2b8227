"""Releasing: a finished task is given up, and what it alone used is free again.

    gone    its head, gates, norms, probes, seals, test samples; its number stays taken, its name can be learned again
    free    entries that no other task uses: drawn anew, from the initial values of their own row in another order, so
            that they are spread as the network's own initialisation spread them, whatever that was
    stays   entries that other tasks use, bit by bit; who uses them is said

What is drawn depends on the seed and the task's number alone. So of two learners that have released a task, both are
the same in all that is saved of tensors, whatever the task's samples were: nothing of them is left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hatrack.errors import HatrackError
from hatrack.learn.before import TRACED, Before
from hatrack.learn.capacity import taken_weights, used_weights
from hatrack.learn.proof.verification import Verification
from hatrack.learn.seeds import generator
from hatrack.measure.shares import reuse
from hatrack.modes import undisturbed

if TYPE_CHECKING:
    from hatrack.learn.core import Core


@dataclass(frozen=True)
class Released:
    """What releasing a task was.

    free    the share of its weights that no other task uses: they are free again; None where tasks share no weights
    used    the tasks that use weights of it, and the share of its weights that each does; these stay as they are
    others  the verdict on all others, compared bit by bit before and after
    """

    task: str
    number: int
    free: float | None
    used: Mapping[str, float]
    others: Verification = field(repr=False)

    def __str__(self) -> str:
        said = f"{self.task!r} (number {self.number}) released"
        if self.free is None:
            said += "; all that it had was its own, and is gone"
        elif not self.used:
            said += "; no other task uses anything of it: all its weights are free again"
        else:
            users = ", ".join(f"{name!r} uses {share:.1%}" for name, share in self.used.items())
            said += f"; {self.free:.1%} of its weights are free again; {users} of them"
        count = len(self.others.tasks)
        compared = f" {count} other task{'' if count == 1 else 's'} compared: not one bit differs." if count else ""
        return f"{said}.{compared}"

    __repr__ = __str__


def release(core: Core, task: int | str | None, oldest: bool) -> Released:
    """Release a finished task, or leave the learner as it was."""
    if (task is None) != oldest:
        raise HatrackError("release takes a task, by number or name, or oldest=True; give one of the two.")
    with core.model.turn, undisturbed():
        ready(core)
        if oldest and core.finished and not core._numbers():
            raise HatrackError("there is no task to release; all that were learned are released.")
        index = core.index(0 if task is None and not core.finished else _oldest(core) if task is None else task)
        refuse_unreleasable(core, core.tasks[index].name)
        before, name = Before(core), core.tasks[index].name
        try:
            for older in [t for t in core.versions if t in core.model.copies and core._current(t) == index]:
                discard(core, older)
            return let_go(core, index)
        except BaseException:
            core._go_back(before, name)
            raise


def ready(core: Core) -> None:
    """Refuse a learner that is in the middle of something."""
    core._refuse_if_learning()
    core._refuse_if_broken()
    core.model.refuse_altered()
    if len(core.tasks) > core.finished:
        raise HatrackError(
            f"task {core.tasks[-1].name!r} is in progress; finish it, or give it up with abandon(), before one that is "
            f"finished is released or put back."
        )


def _oldest(core: Core) -> int:
    return min(core._numbers().values())


def refuse_unreleasable(core: Core, name: str) -> None:
    """Refuse what the method could not keep apart from other tasks."""
    why = core.method.unreleasable()
    if why is not None:
        raise HatrackError(
            f"{core.method.name}, as it was set, cannot release {name!r}: {why}; methods that lock what each task uses "
            f"can (hat, pmask, packnet, wsn, supsup, pathnet, one)."
        )


@torch.no_grad()
def let_go(core: Core, index: int, event: dict[str, Any] | None = None) -> Released:
    """Release a task that can be; where this fails, it is left half done. `event`: what is noted instead."""
    model, method, name = core.model, core.method, core.tasks[index].name
    before, there = core.verify(), core._compared()
    uses = {task: method.use(task) or {} for task in model.remaining}
    free, used = _shares(core, index)
    model.release(index)
    method.release(index)
    core._dismiss(index)
    rest = [use for task, use in uses.items() if task != index]
    core.locked_values.only(rest)
    _draw_anew(core, index, uses[index], rest)
    if core.capacities:
        core.capacities[-1] = taken_weights(method) or core.capacities[-1]
    _look_again(core, index)
    released = {"event": "released", "task": name, "number": index, "after": core.finished, "free": free, "used": used}
    core.events.append(event or released)
    after = core.verify()
    if unlike(before, there, after, core._compared(), {index}):
        raise HatrackError(
            f"without {name!r} another task would be answered otherwise, so it stays, and all is as it was: "
            f"{type(method).__name__}.use does not say all that a task relies on.\n{after}".splitlines()[0]
        )
    return Released(name, index, free, used, after)


def unlike(
    before: Verification, there: Sequence[int], after: Verification, still: Sequence[int], but: Container[int]
) -> bool:
    """Return whether two verdicts differ on a task that both are about, less some; they are given with its numbers."""
    then = {n: proof for n, proof in zip(there, before.tasks, strict=True) if n not in but}
    now = {n: proof for n, proof in zip(still, after.tasks, strict=True) if n not in but}
    return then != now


def discard(core: Core, older: int) -> None:
    """Let go of an older version, which shares nothing."""
    core.model.release(older)
    core.method.release(older)
    core._dismiss(older)


def _shares(core: Core, index: int) -> tuple[float | None, dict[str, float]]:
    """Return the share of a task's weights that no other task uses, and the shares that others use of them."""
    numbers = core._numbers()
    masks = {task: used_weights(core.method, task) or {} for task in numbers.values()}
    mine = masks.pop(index)
    if not any(bool(mask.any()) for mask in mine.values()):
        return None, {}
    every = {name: torch.zeros_like(mask) for name, mask in mine.items()}
    for mask in masks.values():
        for name in every.keys() & mask.keys():
            every[name] |= mask[name]
    table = reuse([mine, every, *masks.values()])[0]
    others = (name for name, task in numbers.items() if task != index)
    return 1 - (table[1] or 0.0), {name: share for name, share in zip(others, table[2:], strict=True) if share}


def _draw_anew(core: Core, index: int, mine: Mapping[str, Tensor], rest: Iterable[Mapping[str, Tensor]]) -> None:
    """Give every shared entry that no remaining task uses a value that nothing was learned in; buffers as well."""
    model = core.model
    shared = {name: p for name, p in core.method.shared().items() if name in mine}
    draw = generator(core.seed, "release", index)
    values = core.method.freed({name: drawn(model.initial[name], draw) for name in shared})
    for name, p in shared.items():
        held = torch.zeros_like(p, dtype=torch.bool)
        for use in rest:
            if name in use:
                held |= use[name] > 0
        p.copy_(torch.where(held, p, values[name]))
    for name, buffer in model.buffers().items():
        if all(name in model.private[task] for task in model.remaining):  # each has its own, and none reads this one
            buffer.copy_(model.initial[name])


def drawn(initial: Tensor, draw: torch.Generator) -> Tensor:
    """Return initial values in another order within each row; those of biases and scales as they are."""
    if initial.ndim < 2 or not initial.numel():
        return initial
    rows = initial.flatten(1)
    places = torch.rand(rows.shape, generator=draw).argsort(1).to(rows.device)
    return rows.gather(1, places).view_as(initial)


def _look_again(core: Core, index: int) -> None:
    """Let the network be traced, from now on, with what the first task that is left is like."""
    model = core.model
    if not model.remaining:
        model.corrected, model.example = model.corrections(), None
        for name in TRACED:
            model.__dict__.pop(name, None)
    elif index < model.remaining[0]:
        model.look(core.tasks[model.remaining[0]].drawn(core.seed, model.remaining[0], core.device, 1))
