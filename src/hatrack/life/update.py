"""Updating: a finished task goes on learning, from more data, newer ones, with more classes or from another domain.

    moves      what only the task uses, its gates or mask, head and norms; free entries may be taken
    stays      what any other task uses, earlier or later, bit by bit
    kept       the version before, on a copy of the network of its own: it answers until the new one is accepted, and
               can be gone back to, as long as no other task relies on an entry that has moved

A version is learned like a task: in a place of its own, so that it can be interrupted, saved, gone on with or given up.
The name, and the number that the task has had, stand for the latest version.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hatrack.data.feed import Feed, Part
from hatrack.data.task import Task
from hatrack.errors import HatrackError, unknown
from hatrack.learn.before import Before
from hatrack.learn.proof.verification import Verification, same_bits, witness
from hatrack.learn.scoring import Scoring
from hatrack.learn.trial import with_ids
from hatrack.life.release import discard, let_go, ready, unlike
from hatrack.modes import undisturbed
from hatrack.targets import Classification, Target

if TYPE_CHECKING:
    from hatrack.learn.core import Core
    from hatrack.learn.learner import Learner

ACCEPT = BETTER, ALWAYS = "better", "always"
BATCH = 1000


@dataclass(frozen=True)
class Updated:
    """What updating a task was.

    before, after  the score of the version before and of the new one, on the validation samples of the new data
    accepted       whether the new version answers from now on
    others         the verdict on all other tasks, compared bit by bit before and after
    """

    task: str
    score: str
    before: float
    after: float
    accepted: bool
    others: Verification = field(repr=False)

    def __str__(self) -> str:
        scored = f"{self.score} {self.before:.4f} before, {self.after:.4f} after"
        if self.accepted:
            return f"{self.task!r} updated: {scored}; learner.revert({self.task!r}) goes back."
        return f"{self.task!r} stays as it was: {scored}, which is not better."

    __repr__ = __str__


def update(learner: Learner, task: int | str, data: Task, accept: str, **told: Any) -> Updated:
    """Let a finished task learn on, or leave the learner as it was."""
    if accept not in ACCEPT:
        raise unknown("accept", accept, ACCEPT)
    if not isinstance(data, Task):
        raise HatrackError(f"update takes data as a task, hatrack.Task(name, train=(x, y)), got {type(data).__name__}.")
    with learner.model.turn, undisturbed():
        learner._refuse_if_learning()
        learner._refuse_if_broken()
        index = learner.index(task)
        name = learner.tasks[index].name
        refuse_lasting(learner, name)
        _refuse_narrow(learner, index, "be updated")
        made = copy.copy(with_ids(learner.model, data))
        made.name, made.target = name, _grown(name, learner.tasks[index].target, data.target)
        going_on = learner._updating == index and learner._before is not None
        before = learner._before if going_on and learner._before is not None else Before(learner)
        checked = learner.verify()
        there = learner._compared()
    learner._pending = index
    try:
        learner.learn(made, **told)
    finally:
        learner._pending = None
    with learner.model.turn, undisturbed():
        number = learner.finished - 1
        after = learner.verify()
        if unlike(checked, there, after, learner._compared(), {index, number}):
            learner._go_back(before, name)
            raise HatrackError(
                f"with {name!r} updated another task would be answered otherwise, so all is as it was: "
                f"{type(learner.method).__name__}.use does not say all that a task relies on."
            )
        scores = _scores(learner, made, index), _scores(learner, made, number)
        judged = made.target.judged()
        better = scores[1] > scores[0] if judged.larger_is_better else scores[1] < scores[0]
        accepted = better or accept == ALWAYS
        event = {"event": "updated", "task": name, "number": index, "new": number, "after": learner.finished}
        if not accepted:
            learner._go_back(before, name)
        else:
            for older in [t for t, n in learner.versions.items() if n == index and t in learner.model.copies]:
                discard(learner, older)
        learner.events.append(event | {"accepted": accepted, "score": judged.score, "scores": list(scores)})
        return Updated(name, judged.score, *scores, accepted, after)


def refuse_lasting(core: Core, name: str) -> None:
    """Refuse a method in which a finished task cannot learn on."""
    method = core.method
    if not (method.updatable and method.promises()):
        raise HatrackError(
            f"{method.name}, as it was set, cannot update {name!r}: it does not keep apart what a task may change "
            f"alone; hat, pmask, packnet and wsn can, with hard gates and norms that are not shared."
        )


def _refuse_narrow(core: Core, task: int, what: str) -> None:
    """Refuse a version of the width that the network had before it grew."""
    if core.model.generation(task) is not None:
        raise HatrackError(
            f"task {core.tasks[task].name!r} cannot {what}: the network has grown since it was learned, and it keeps "
            f"the width of then; learn what is new as a task of its own."
        )


def _grown(name: str, old: Target, new: Target) -> Target:
    """Return what the new version predicts: all that the old one did, and classes that have come."""
    if not isinstance(old, Classification) or not isinstance(new, Classification):
        if type(old) is not type(new) or old.outputs != new.outputs:
            raise HatrackError(
                f"task {name!r} predicts {old.name} with {old.outputs} outputs, got {new.name} with {new.outputs}; "
                f"learn that as a task of its own (classes alone can grow)."
            )
        return replace(old, own_loss=new.own_loss, own_score=new.own_score)
    if old.names is not None and new.names is not None:
        lost = [known for known in old.names if known not in new.names]
        if lost:
            raise HatrackError(f"task {name!r} knows the class {lost[0]!r}, which the new data do not name; name all.")
        return new
    if new.outputs < old.outputs:  # not every class occurs among the new samples
        return replace(new, classes=old.outputs, names=old.names)
    if old.names is not None and new.outputs > old.outputs:
        raise HatrackError(f"task {name!r} has classes with names; name those of the new data: Task(..., names=[…]).")
    return replace(new, names=old.names) if old.names is not None else new


def _rows(old: Target, new: Target) -> list[int | None]:
    """Return, for every output of the new version, which one of the old it goes on from."""
    if isinstance(old, Classification) and isinstance(new, Classification) and old.names and new.names:
        known = list(old.names)
        return [known.index(name) if name in known else None for name in new.names]
    return [row if row < old.outputs else None for row in range(new.outputs)]


@torch.no_grad()
def take_up(core: Core, old: int, new: int) -> None:
    """Let a task that begins start from a finished one, and that live on a copy of the network from now on."""
    model = core.model
    mine, theirs = model.heads[new], model.heads[old]
    if mine.weight.shape[1] != theirs.weight.shape[1]:
        raise HatrackError(
            f"task {core.tasks[old].name!r} was learned from {theirs.weight.shape[1]} features a sample, the new data "
            f"give {mine.weight.shape[1]}; bring the inputs to one shape."
        )
    for row, known in enumerate(_rows(core.tasks[old].target, core.tasks[new].target)):
        if known is not None:
            mine.weight[row], mine.bias[row] = theirs.weight[known], theirs.bias[known]
    own = model.private[old]
    for name, tensor in model.private[new].items():
        if name in own:
            tensor.copy_(own[name])
    buffers = {name: b.clone() for name, b in model.buffers().items() if name not in own}
    model.copies[old] = {**buffers, **core.method.seen(old)}
    core.versions[old] = new


@torch.no_grad()
def _scores(learner: Learner, made: Task, number: int) -> float:
    """Return the score of a version on the validation samples of the new data; what it has no output for, it misses."""
    learned, model = learner.tasks[number], learner.model
    split = learner._samples.parts(made, learner.finished - 1)[1].split
    feed = Feed([Part(number, split, learned.inputs, made.target)], learner.device, learner.workers)
    rows = _rows(learned.target, made.target)
    score = Scoring(made.target, made.name)
    with learner._drawing(5):  # a Dataset may draw
        for batch in feed.batches(BATCH):
            with model.alone():
                logits = learner.method.predict(batch.x, number)
            score.add(_widened(logits, rows), batch.y)
    return score.figure()


def _widened(logits: Tensor, rows: Sequence[int | None]) -> Tensor:
    if rows == list(range(logits.shape[1])):
        return logits
    return torch.stack([torch.full_like(logits[:, 0], -torch.inf) if r is None else logits[:, r] for r in rows], 1)


# ---- the version before


def revert(core: Core, task: int | str) -> Verification:
    """Go back to the version before, or leave the learner as it was."""
    with core.model.turn, undisturbed():
        ready(core)
        number = core.index(task)
        name = core.tasks[number].name
        older = [t for t, n in core.versions.items() if n == number and t in core.model.copies]
        if not older:
            raise HatrackError(f"task {name!r} has no version before this one to go back to.")
        _refuse_narrow(core, older[0], "go back")
        before = Before(core)
        try:
            return _back(core, older[0], number)
        except BaseException:
            core._go_back(before, name)
            raise


@torch.no_grad()
def _back(core: Core, old: int, new: int) -> Verification:
    model, method, name = core.model, core.method, core.tasks[new].name
    uses = {task: method.use(task) or {} for task in model.remaining if task != new}
    copies = model.copies.pop(old)
    method.take_back(old, new)
    mine, parameters = method.use(old) or {}, dict(model.net.named_parameters())
    for key in copies.keys() & mine.keys():
        p, held = parameters[key], mine[key] > 0
        moved = held & ~same_bits(p.detach(), copies[key])
        for task, use in uses.items():
            if key in use and bool((moved & (use[key] > 0)).any()):
                raise HatrackError(
                    f"task {name!r} cannot go back: {core.tasks[task].name!r} relies on entries of {key} that the new "
                    f"version has moved; release that task before, or update {name!r} once more."
                )
        p.copy_(torch.where(held, copies[key], p))
    for key, buffer in model.buffers().items():
        if key in copies:
            buffer.copy_(copies[key])
    del core.versions[old]
    core.locked_values.only(uses.values())
    core.locked_values.add(parameters, mine)
    let_go(core, new, {"event": "reverted", "task": name, "number": old, "new": new, "after": core.finished})
    reseal(core, old)
    return core.verify()


def reseal(core: Core, task: int) -> None:
    """Take the digests of a version that has changed places anew; what it answers must be what it was."""
    known = core.probes[task]
    taken = witness(core.method, task, core.tasks[task], core._drawn(task))
    if known.environment == taken.environment and not torch.equal(known.logits, taken.logits):
        raise HatrackError(f"the version of {core.tasks[task].name!r} that is kept would be answered otherwise.")
    core.probes[task] = replace(known, seal=taken.seal)
