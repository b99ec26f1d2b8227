"""Adopting: what a network can do already becomes the learner's first finished task.

    all of it       every gate open, every weight that is read locked; the head's weights bit for bit
    with room       what answers can best do without is closed, by what each gate is worth (methods/parts/worth.py),
                    until `room` of the weights is free, or as long as the score falls by no more than `cost`

No weight moves. The score is that of the validation samples; the learner tests the task as it tests any other.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hatrack.data.task import Task
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.learn.capacity import taken_weights
from hatrack.learn.fit import validate
from hatrack.learn.last_layer import own_last_layer, taken_off
from hatrack.learn.loop import Data, all_or_nothing, begin_task, end_task, gather, test_all
from hatrack.learn.seeds import generator
from hatrack.learn.trial import with_ids
from hatrack.measure.shares import Share
from hatrack.methods.parts.worth import least, most, without_end
from hatrack.modes import evaluating, undisturbed, untouched
from hatrack.targets import Classification, Dense, Regression
from hatrack.tree import mapped

if TYPE_CHECKING:
    from hatrack.learn.learner import Learner

TRIED = 64  # samples at most on which answers are compared with the head's own
ROUNDING = 1e-4  # of the largest answer: what another order of the same sums may change


@dataclass(frozen=True)
class Adopted:
    """What adopting was.

    before, after  the score on the validation samples: of the network as it was, and of what was kept of it
    free           the share of weights that later tasks may change, in all and by layer; None where nothing is locked
    promised       whether the method promises that the task stays as it is
    """

    task: str
    score: str
    before: float
    after: float
    free: Share | None
    promised: bool

    def __str__(self) -> str:
        scored = f"{self.task!r} adopted: {self.score} {self.before:.4f} before, {self.after:.4f} after"
        if not self.promised:
            return f"{scored}; the method makes no promise: later tasks may change it."
        if self.free is None:
            return f"{scored}; every later task has a network of its own."
        if self.free["total"] > 0:
            layers = ", ".join(f"{layer} {left:.0%}" for layer, left in self.free["layers"].items())
            return f"{scored}; {self.free['total']:.1%} of the weights are free ({layers})."
        return (
            f"{scored}; no weight is free: later tasks read its units with heads and norms of their own, which "
            f"is all they can learn with; room=0.5 leaves them weights, where its data allow."
        )

    __repr__ = __str__


def adopt(learner: Learner, task: Task, head: nn.Module | None, room: float, cost: float) -> Adopted:
    """Make what network and head do now the learner's first task, or leave the learner as it was."""
    if not isinstance(task, Task):
        raise HatrackError(f"adopt takes a task, hatrack.Task(name, train=(x, y)), got {type(task).__name__}.")
    _refuse_share("room", room, below=1.0)
    _refuse_share("cost", cost, below=float("inf"))
    with learner.model.turn, undisturbed():
        learner._refuse_if_learning()
        if learner.tasks:
            raise HatrackError(
                f"task {task.name!r} cannot be adopted: the learner has {learner.tasks[0].name!r} already, and its "
                f"network is no longer what it was; adopt comes before all other tasks."
            )
        _refuse_changed(learner, task)
        if head is None:
            raise HatrackError(
                f"task {task.name!r}: head is missing, the network's last layer, apart from it: {_how(learner, task)}."
            )
        weight, bias = _parameters(task, head)
        task = _ready(with_ids(learner.model, task), weight)
        data = gather(learner, task)
        with all_or_nothing(learner, task):
            began = monotonic()
            history = begin_task(learner, task, data.train)
            _fill(learner, task, weight, bias)
            learner.method.begin_phase(0)
            learner.method.adopt()
            _refuse_other_answers(learner, task, head)
            before = after = _score(learner, data)
            if room:
                after = _leave_room(learner, task, data, room, cost, before)
            end_task(learner, task, data)
            history.epochs, history.seconds = [], monotonic() - began
            taken, promised = taken_weights(learner.method), learner.method.promises()
            test_all(learner, history)
    free = _rest(taken) if promised and learner.method.occupied() else None
    return Adopted(task.name, learner.tasks[0].target.judged().score, before, after, free, promised)


# ---- what is given


def _refuse_share(name: str, given: object, below: float) -> None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < below or not isfinite(given):
        most = f" and below {below:g}" if isfinite(below) else ""
        raise HatrackError(f"{name} must be a figure of 0 or more{most}, got {given!r}.")


def _refuse_changed(learner: Learner, task: Task) -> None:
    """Refuse a network that is not what it was handed over as: what tasks keep for themselves starts from that."""
    initial = learner.model.initial
    for name, tensor in learner.model.tensors().items():
        if not torch.equal(tensor, initial[name]):
            raise HatrackError(
                f"task {task.name!r} cannot be adopted: the network was changed after the learner was made ({name}); "
                f"make a new learner of it."
            )


def _parameters(task: Task, head: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Return a head's weight, an output a row, and its bias."""
    whose = f"task {task.name!r}: head"
    if not isinstance(head, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) or not _pointwise(head):
        raise HatrackError(
            f"{whose} must be the last linear layer (torch.nn.Linear, or a 1×1 convolution), got "
            f"{type(head).__name__}; leave in the network what comes before that layer."
        )
    weight, bias = head.weight.detach(), head.bias
    if not all(bool(p.isfinite().all()) for p in head.parameters()):
        raise HatrackError(f"{whose} has numbers that are not finite; load its weights before.")
    if weight.dtype == torch.float64:
        raise HatrackError(f"{whose} is of {weight.dtype}, heads are of torch.float32; convert network and head.")
    return weight.flatten(1), None if bias is None else bias.detach()


def _pointwise(head: nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) -> bool:
    return isinstance(head, nn.Linear) or {*head.kernel_size, *head.stride, head.groups} == {1}


def _how(learner: Learner, task: Task) -> str:
    """Say how the last layer is taken off this network."""
    try:
        x = task.inputs.on(learner.device)(mapped(lambda part: part.to(learner.device), task.train.first(1)))
        name = own_last_layer(learner.model, x)
    except Exception:  # what the network cannot take is said when a head is given
        name = None
    line = taken_off(name) if name is not None else "head, net.fc = net.fc, torch.nn.Identity()"
    return f"{line}, a new Learner of net, then learner.adopt(task, head=head)"


def _ready(task: Task, weight: Tensor) -> Task:
    """Return the task with as many outputs as the head has, in the unit that it answers in; refuse another number."""
    outputs, target = len(weight), task.target
    if isinstance(target, Classification | Dense) and target.outputs < outputs:
        target = replace(target, classes=outputs)  # not every class occurs among the samples
    if target.outputs != outputs:
        raise HatrackError(
            f"task {task.name!r} has {target.outputs} outputs ({target.name}), its head {outputs}; give samples of "
            f"what the head answers."
        )
    if isinstance(target, Regression):  # its head answers in the unit of the targets
        target = replace(target, mean=(0.0,) * outputs, std=(1.0,) * outputs)
    made = copy.copy(task)
    made.target = target
    if made.valid is None and len(made.train) == 1:
        made.valid = made.train
    return made


def _fill(learner: Learner, task: Task, weight: Tensor, bias: Tensor | None) -> None:
    mine = learner.model.heads[0]
    if mine.weight.shape != weight.shape:
        raise HatrackError(
            f"task {task.name!r}: head reads {weight.shape[1]} units, the network gives {mine.weight.shape[1]}; hand "
            f"over a network that ends where the head begins (pooled and flattened as it reads them)."
        )
    with torch.no_grad():
        mine.weight.copy_(weight)
        mine.bias.zero_() if bias is None else mine.bias.copy_(bias)


@torch.no_grad()
def _refuse_other_answers(learner: Learner, task: Task, head: nn.Module) -> None:
    """Refuse where the method answers otherwise than head(net(x)): it has changed weights, or masked some."""
    model, method = learner.model, learner.method
    own = copy.deepcopy(head).to(model.device).float()
    with learner._drawing(5):  # a Dataset may draw
        x = mapped(lambda part: part.to(model.device), task.train.first(TRIED))
    x = task.inputs.on(model.device)(x)
    with evaluating(model.net), untouched(model.net), model.unrounded():
        expected = own(model.picked(x).float())
        given = method.predict(x, 0)
    changed = any(not torch.equal(t, model.initial[name]) for name, t in model.tensors().items())
    if given.numel() == expected.numel():
        size = float(expected.abs().max())
        changed |= not bool(((given - expected.view(given.shape)).abs() <= ROUNDING * max(size, 1.0)).all())
    else:
        changed = True
    if changed:
        raise HatrackError(
            f"{method.name} cannot adopt what a network does: it makes weights, masks or paths of its own, under which "
            f"{task.name!r} is answered otherwise; choose another method, hat for one."
        )


# ---- room


def _score(learner: Learner, data: Data) -> float:
    return validate(learner.method, data.valid)[1]


def _leave_room(learner: Learner, task: Task, data: Data, room: float, cost: float, before: float) -> float:
    """Close what answers can best do without; return the score then."""
    method, target = learner.method, learner.model.targets[0]
    batches = without_end(data.train, learner.batch_size, generator(learner.seed, "shuffle", 0))
    with evaluating(learner.model.net), learner.model.precision.products():
        worth = method.worth(batches)
    if worth is None:
        raise HatrackError(
            f"{method.name} cannot leave room in a network that it adopts, it has no gates or masks to close; leave "
            f"room out, or choose hat, pmask or packnet."
        )
    found: tuple[int, float] = 0, before

    def roomy(count: int) -> bool:
        method.adopt(most(worth, count))
        return _free(learner) >= room

    def costly(count: int) -> bool:
        nonlocal found
        method.adopt(most(worth, count))
        score = _score(learner, data)
        fallen = before - score if target.judged().larger_is_better else score - before
        if not fallen <= cost:
            return True
        found = count, score
        return False

    wanted = least(roomy, len(worth))
    if costly(wanted):
        least(costly, wanted)
        method.adopt(most(worth, found[0]))
        warnings.warn(
            HatrackWarning(
                f"task {task.name!r}: within a cost of {cost:g} in {target.judged().score}, {_free(learner):.1%} of "
                f"the weights can be left free, not {room:.0%}; allow a larger cost, or give more samples."
            ),
            stacklevel=4,
        )
    return found[1]


def _free(learner: Learner) -> float:
    taken = taken_weights(learner.method)
    return 1.0 if taken is None else 1 - taken["total"]


def _rest(taken: Share | None) -> Share | None:
    return (
        None
        if taken is None
        else {
            "total": 1 - taken["total"],
            "layers": {layer: 1 - share for layer, share in taken["layers"].items()},
        }
    )
