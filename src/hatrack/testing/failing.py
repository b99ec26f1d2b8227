"""A task is learned or it never was: what a save holds is the same, byte for byte, as before.

Where learning fails, and where it is stopped and given up, in the same process and after a load; and whatever failed,
the next task is learned as by a learner that never saw it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from hatrack.data.task import Task
from hatrack.learn.learner import Learner
from hatrack.learn.proof import verification
from hatrack.testing.behaviour import behaviour, require_same
from hatrack.testing.case import Case, digits

SAMPLES, BATCH = 48, 16


class Trouble(Exception):
    """What fails."""


# What fails: in which call of what, and whether before its work is done.
FAILURES: dict[str, tuple[str, int, type[BaseException], bool]] = {
    "begin": ("begin_task", 1, Trouble, False),
    "first batch": ("loss", 1, Trouble, True),
    "mid-epoch": ("loss", 5, Trouble, True),
    "out of memory": ("loss", 5, torch.OutOfMemoryError, True),
    "callback": ("callback", 2, Trouble, True),
    "validation": ("valid_loss", 2, Trouble, True),
    "end of a phase": ("end_phase", 1, Trouble, False),
    "end of the task": ("end_task", 1, Trouble, False),
    "proof": ("probe_logits", 1, Trouble, True),
}
OF_A_FIRST_TASK = ("begin", "mid-epoch", "end of the task")  # each has to trace the network anew
WITHOUT_TRAINING = ("begin", "end of a phase", "end of the task", "proof")


def fail(learner: Learner, task: Task, verb: str, call: int, kind: type[BaseException], before: bool) -> None:
    """Have a task learned while the `call`-th call of something raises, before or after it has done its work."""
    listener = SimpleNamespace(callback=lambda epoch: None)
    owner: Any = next(o for o in (type(learner.method), verification, listener) if hasattr(o, verb))
    original, calls = getattr(owner, verb), iter(range(1, 1_000_000))

    def failing(*args: Any) -> Any:
        due = next(calls) == call
        if due and before:
            raise kind
        result = original(*args)
        if due:
            raise kind
        return result

    with patch.object(owner, verb, failing):
        try:
            learner.learn(task, on_epoch=lambda epoch: listener.callback(epoch))
        except kind:
            return
    raise AssertionError(f"call {call} of {verb} raised {kind.__name__}, and learn did not")


@behaviour("be what it was before a task that fails", "residual")
def forgets_what_fails(case: Case) -> None:
    tasks = digits(SAMPLES)
    learner, clean = (case.learner(epochs=2, batch_size=BATCH) for _ in range(2))
    possible = FAILURES if learner.method.trains else WITHOUT_TRAINING
    for index, failures in enumerate((OF_A_FIRST_TASK, FAILURES)):
        before = case.held(learner)
        for failure in [f for f in failures if f in possible]:
            fail(learner, tasks[2], *FAILURES[failure])
            require_same(case.held(learner), before, f"after it failed ({failure})")
        loaded = _handed_over(case, learner)
        for each in (learner, clean, loaded):
            each.learn(tasks[index])
        after = case.held(clean)
        for each in (learner, loaded):
            require_same(case.held(each), after, "after the next task")


@behaviour("be what it was before a task that is given up", "residual")
def forgets_what_is_given_up(case: Case) -> None:
    tasks = digits(SAMPLES)
    learner, clean = (case.learner(epochs=2, batch_size=BATCH) for _ in range(2))
    for index in (0, 1):
        before, others = case.held(learner), []
        for verb, call in (("loss", 5), ("end_task", 1)) if learner.method.trains else (("end_task", 1),):
            fail(learner, tasks[2], verb, call, KeyboardInterrupt, before=False)
            if verb == "loss":  # in its middle a task can be saved, and given up by another process
                others = [_handed_over(case, learner)]
                others[0].abandon()
                require_same(case.held(others[0]) | {"modes": before["modes"]}, before, "given up after a load")
            learner.abandon()
            require_same(case.held(learner), before, f"given up when stopped in {verb}")
        for each in (learner, clean, *others):
            each.learn(tasks[index])
        after = case.held(clean)
        for each in (learner, *others):
            require_same(case.held(each), after, "after the next task")


def _handed_over(case: Case, learner: Learner) -> Learner:
    learner.save(case.folder / "handed over")
    return case.loaded(case.folder / "handed over", digits(SAMPLES))
