"""copy.deepcopy of a learner."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from torch import nn

from hatrack.errors import HatrackError
from hatrack.learn.trial import first_line
from hatrack.modes import undisturbed

if TYPE_CHECKING:
    from hatrack.learn.core import Core

CACHES = {"_feeds", "stored"}  # which the copy fills itself
BY_FOLDER = "save it (learner.save) and load it from the folder (hatrack.load)."


def copied(learner: Core, memo: dict[int, Any]) -> Core:
    """Return a learner that goes its own way from here; samples, which never change, are shared."""
    learner._refuse_if_broken()
    if len(learner.tasks) > learner.finished:
        raise HatrackError(
            f"a learner in the middle of a task ({learner.tasks[-1].name!r}) cannot be copied; copy it when the task "
            f"is finished, or save it and load the copy from the folder."
        )
    made = object.__new__(type(learner))
    memo[id(learner)] = made
    for factory in (vars(learner).get("_optimizer"), vars(learner).get("_scheduler")):
        memo[id(factory)] = factory
    with learner.model.turn, undisturbed():
        learner.model.refuse_altered()
        held = {key: value for key, value in vars(learner).items() if key not in CACHES}
        try:
            made.__dict__ |= {key: deepcopy(value, memo) for key, value in held.items()}
        except (RuntimeError, TypeError) as error:
            raise HatrackError(f"this learner cannot be copied ({first_line(error)}); {BY_FOLDER}") from error
    made.__dict__ |= {key: {} for key in CACHES & vars(learner).keys()}
    pairs = zip(_parts(learner.model.net), _parts(made.model.net), strict=True)
    if any(memo.get(id(part)) is not copy for part, copy in pairs):  # what refers to the parts would miss them
        raise HatrackError(f"{type(learner.model.net).__name__} copies itself in a way of its own; {BY_FOLDER}")
    return made


def _parts(net: nn.Module) -> list[nn.Module | nn.Parameter]:
    return [*net.modules(), *net.parameters()]
