"""What a task is learned from and validated on; and the samples of earlier tasks, for methods that go on learning them.

Such a method is validated on the earlier tasks too: on the same share of their validation samples as it keeps of the
others.
"""

from __future__ import annotations

import torch

from hatrack.data.feed import Part
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.seeds import generator

HELD_OUT = 0.15  # share of the training samples that validates a task which brings no validation part


class Samples:
    """`share` of every finished task's samples is kept, chosen by the seed; nothing where it is None."""

    def __init__(self, seed: int, share: float | None) -> None:
        self._seed, self._share = seed, share
        self.train: list[Part] = []
        self.valid: list[Part] = []

    @property
    def tasks(self) -> int:
        """The number of tasks of which samples are kept."""
        return len(self.train)

    def parts(self, task: Task, index: int) -> tuple[Part, Part]:
        """Return training and validation samples; without a validation part, a share is held out by the seed."""
        train, valid = self._splits(task, index)
        own = Part(index, train, task.inputs, task.target, task.augment, task.sampler)
        return own, Part(index, valid, task.inputs, task.target)

    def keep(self, train: Part, valid: Part) -> None:
        """Keep the share of a finished task's samples that the method wants to have at hand later."""
        if self._share is not None:
            kept = self._some(train, self._share, train.task), self._some(valid, self._share, valid.task, 1)
            self.train.append(kept[0])
            self.valid.append(kept[1])

    def _splits(self, task: Task, index: int) -> tuple[Split, Split]:
        if task.valid is not None:
            return task.train, task.valid
        if task.train.streams:
            raise HatrackError(
                f"task {task.name!r}: of an iterable Dataset no samples can be held out; give Task(..., valid=…)."
            )
        order = torch.randperm(len(task.train), generator=generator(self._seed, "split", index))
        cut = max(1, round(HELD_OUT * len(order)))
        if cut >= len(order):
            raise HatrackError(f"task {task.name!r} has {len(order)} training samples: too few to hold any out.")
        return task.train.take(order[cut:].sort().values), task.train.take(order[:cut].sort().values)

    def _some(self, part: Part, share: float, *where: int) -> Part:
        count = max(1, round(share * len(part.split)))
        if count == len(part.split):
            return part
        rows = torch.randperm(len(part.split), generator=generator(self._seed, "memory", *where))[:count]
        # A sampler that knows the rows of all samples has nothing to say of some.
        sampler = None if part.sampler is not None and part.sampler.needs_all else part.sampler
        return part._replace(split=part.split.take(rows.sort().values), sampler=sampler)
