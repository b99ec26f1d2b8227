"""What an export is held against: raw samples of a task, with their targets, or inputs drawn from the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hatrack.data.feed import Feed, Part
from hatrack.data.inputs import Inputs
from hatrack.data.samples import split_of
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.targets import Target
from hatrack.tree import count

if TYPE_CHECKING:
    from hatrack.learn.core import Core

SIZE = 250  # samples of a batch
CALIBRATION = 256  # samples at most that int8's ranges are found on


class _Raw(Inputs):
    """Inputs as they are: bytes stay bytes, and nothing is scaled."""

    def on(self, device: torch.device) -> Callable[[Any], Any]:
        return lambda x: x


@dataclass(frozen=True)
class Samples:
    """Raw samples in batches.

    said       what `count` of them are, in words
    target     what the task predicts, with the user's own score where it is at hand; None: there are no targets
    calibrate  raw inputs that ranges can be found on, and what they are in words; None where there are none but drawn
    """

    said: str
    count: int
    batches: Callable[[], Iterator[tuple[Any, Tensor | None]]]
    target: Target | None = None
    calibrate: tuple[Any, str] | None = None


def samples_of(core: Core, index: int, given: Any) -> Samples:
    """Return the samples that were handed in for a finished task, else those that the learner has, else drawn ones."""
    learned = core.tasks[index]
    if given is None:
        known: dict[int, Part] = getattr(core, "_tests", {})
        if index not in known:
            drawn = learned.probes(core.seed, index, torch.device("cpu"))
            return Samples("inputs drawn from the seed", count(drawn), lambda: iter([(drawn, None)]))
        split, target = known[index].split, known[index].target
    elif isinstance(given, Task):
        if given.test is None:
            raise HatrackError(f"task {given.name!r} has no test part to hold an export against.")
        split, target = given.test, given.target
    else:
        target = learned.target
        where = f"samples of task {learned.name!r}"
        split = split_of(given, where, None, None).read_by(target, where)
    train = given.train if isinstance(given, Task) else None
    some = (split if train is None else train).first(CALIBRATION)
    said = f"{count(some)} {'test' if train is None else 'training'} samples"
    feed = Feed([Part(0, split, _Raw(), target)], torch.device("cpu"))
    return Samples(
        "test samples",
        len(split),
        lambda: ((batch.x, batch.y) for batch in feed.batches(SIZE)),
        learned.predicting(target),
        (some, said),
    )
