"""What is kept of a finished task to know its samples again: means, a covariance, how far its samples are from them.

Made in one pass when the task ends, from its own samples alone; no sample is among it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.learn.machine.cpu.mode import fast
from hatrack.learn.which.evidence import Evidence, evidence
from hatrack.learn.which.gaussian import Gaussian, fit
from hatrack.learn.which.scores import ALONE, Fit
from hatrack.methods.base import Method
from hatrack.modes import evaluating, one_thread
from hatrack.targets import Classification, Target

LEVELS = 201  # quantiles of held-out samples that are kept of each score: every half per cent
VALUES = 2**23  # of features that a covariance is computed from, of samples drawn by lot where there are more
LEAST = 1e-12  # of a deviation that is divided by
HELD_OUT = "held_out/"


@dataclass(frozen=True, eq=False)
class Statistics:
    """`mean`, `deviation`: of training samples' D² to the nearest class; `held_out`: quantiles of scores, by name."""

    gaussian: Gaussian
    mean: Tensor
    deviation: Tensor
    held_out: Mapping[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        """Return all there is by name."""
        parts = {field.name: getattr(self.gaussian, field.name) for field in fields(Gaussian)}
        held = {HELD_OUT + name: levels for name, levels in self.held_out.items()}
        return {**parts, "mean": self.mean, "deviation": self.deviation, **held}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Return what `tensors` told of."""
        gaussian = Gaussian(**{field.name: tensors[field.name] for field in fields(Gaussian)})
        held = {name.removeprefix(HELD_OUT): t for name, t in tensors.items() if name.startswith(HELD_OUT)}
        return cls(gaussian, tensors["mean"], tensors["deviation"], held)

    def fit(self, found: Evidence) -> Fit:
        """Return how samples stand to the task."""
        gaussian = self.gaussian
        distances, width = gaussian.distances(found.features), gaussian.means.shape[1]
        return Fit(distances, found.logits, self.mean, self.deviation, gaussian.log_determinant, width, self.standards)

    @cached_property
    def standards(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Mean and deviation of the scores of held-out samples, by name."""
        held = {name: levels.double() for name, levels in self.held_out.items()}
        return {name: (levels.mean(), levels.std().clamp(min=LEAST)) for name, levels in held.items()}

    def limit(self, score: str, false_alarms: float) -> Tensor:
        """Return the score that so large a share of the task's held-out samples exceeds."""
        return self.held_out[score].double().quantile(1 - false_alarms, interpolation="higher")


@torch.no_grad()
def statistics(method: Method, task: int, target: Target, train: Feed, held_out: Feed, size: int) -> Statistics | None:
    """Return what is to be kept of a task; None where it answers by position, or its features are not finite.

    `size`: samples a batch.
    """
    if target.per_position:
        return None
    with evaluating(method.model.net):
        features, labels = _gathered(method, task, target, train, size)
        if not features.shape[1] or not bool(features.isfinite().all()):
            return None
        with one_thread():  # so that the last bits do not depend on how many there are
            gaussian = _placed(fit(features, labels), method.model.device)
        parts = features.split(size)  # distances to many classes take more room than features
        nearest = torch.cat([gaussian.distances(part.to(method.model.device)).amin(1) for part in parts])
        spread = nearest.std(correction=0).clamp(min=LEAST)
        made = Statistics(gaussian, nearest.mean().float(), spread.float(), {})
        found = [made.fit(seen) for _, seen in _passed(method, task, held_out, size)]
    for name, score in ALONE.items():
        each = torch.cat([score(one._replace(held_out=made.standards)) for one in found]).cpu()
        made = replace(made, held_out={**made.held_out, name: _levels(each).to(method.model.device)})
    return made


def _levels(scores: Tensor) -> Tensor:
    """Return quantiles that a new sample exceeds as often as they say: of n, the ⌈q·(n + 1)⌉-th, the last at most."""
    places = torch.linspace(0, 1, LEVELS, dtype=torch.float64).mul(len(scores) + 1).sub(1e-9).ceil().long()
    return scores.double().sort().values[(places - 1).clamp(0, len(scores) - 1)].float()


def _gathered(method: Method, task: int, target: Target, feed: Feed, size: int) -> tuple[Tensor, Tensor]:
    """Return features and classes of the samples, of as many as there is room for; one class where there is none."""
    features, labels, row = list[Tensor](), list[Tensor](), 0
    order = torch.randperm(len(feed), generator=torch.Generator().manual_seed(task))
    for batch, seen in _passed(method, task, feed, size):
        room = max(VALUES // max(seen.features.shape[1], 1), 1)
        chosen = (order[row : row + len(batch.y)] < room).to(batch.y.device)
        row += len(batch.y)
        label = (
            target.strata(batch.y)
            if isinstance(target, Classification)
            else torch.zeros(len(batch.y), device=batch.y.device)
        )
        features.append(seen.features[chosen].cpu())
        labels.append(label[chosen].long().cpu())
    return torch.cat(features), torch.cat(labels)


def _passed(method: Method, task: int, feed: Feed, size: int) -> Iterator[tuple[Batch, Evidence]]:
    for batch in feed.epoch(feed.order(), size, training=feed.streams):
        with fast(method.model.device):
            seen = evidence(method, batch.x, task)
        yield batch, seen


def _placed(gaussian: Gaussian, device: torch.device) -> Gaussian:
    return Gaussian(**{field.name: getattr(gaussian, field.name).to(device) for field in fields(Gaussian)})
