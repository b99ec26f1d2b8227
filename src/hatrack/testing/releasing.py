"""A task that is released leaves nothing behind, or it is refused in one line.

Nothing: of two learners that have released different tasks, all tensors that are saved are the same, bit by bit, and
so they stay when both learn on. Whatever depended on the samples of what was released would tell the two apart.
"""

from __future__ import annotations

import copy
from typing import Any

from hatrack.errors import HatrackError
from hatrack.learn.learner import Learner
from hatrack.testing.behaviour import behaviour, require, require_same, require_unchanged
from hatrack.testing.case import Case, differing, digits

SAMPLES = 48


@behaviour("let a task go without a trace, others bit by bit as they were, or refuse in a line", "mlp", "residual")
def releases(case: Case) -> str | None:
    first, second, third = digits(SAMPLES)
    one, other = (case.learner(epochs=2, batch_size=16) for _ in range(2))
    one.learn(first)
    before = case.held(one)
    try:
        copy.deepcopy(one).release(first.name)
    except HatrackError as error:
        line = str(error)
        require("\n" not in line and one.method.name in line, f"refused without saying by whom and why: {line}")
        require(case.held(one) == before, "refused, but something was changed")
        return line
    require(case.promises, "releases a task without a promise to the others")
    other.learn(second)
    for learner in (one, other):  # the only task there is
        learner.release(oldest=True)
    _require_alike(case, one, other, "after the only task was released")
    for learner, gone in ((one, third), (other, second)):
        learner.learn(first)
        answer = learner.predict(first.train.first(20), 1)
        learner.learn(gone)
        released = learner.release(gone.name)
        require(released.others.ok and len(released.others.tasks) == 1, f"others are not unchanged: {released.others}")
        odd = differing({"": answer}, {"": learner.predict(first.train.first(20), 1)})
        require(not odd, "the task that stayed is answered otherwise")
    _require_alike(case, one, other, "after the last task was released")
    loaded = case.loaded(_saved(case, one), [])
    for learner in (one, other, loaded):
        learner.learn(third)
        require_unchanged(learner)
    _require_alike(case, one, other, "after the next task")
    _require_alike(case, one, loaded, "after the next task of a loaded one")
    learner = one
    learner.release(1)  # an older one than the last
    require_unchanged(learner)
    return None


def _require_alike(case: Case, one: Learner, other: Learner, when: str) -> None:
    require_same(_files(case, one), _files(case, other), when)


def _files(case: Case, learner: Learner) -> dict[str, Any]:
    """Return the digests of all tensors that a save holds."""
    return {kind: entry["sha256"] for kind, entry in case.held(learner)["files"].items()}


def _saved(case: Case, learner: Learner) -> Any:
    learner.save(case.folder / "released")
    return case.folder / "released"
