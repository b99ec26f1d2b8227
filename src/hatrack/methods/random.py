"""A random classifier: draws each label with the frequency it has in the task's training set.

The logits are Gumbel noise plus the log frequencies, so that their argmax is such a draw; the noise comes from the
seed, the task and the inputs' position, so that a run can be repeated. Of several labels a sample the order is noise;
figures are answered by their mean; classes of positions are drawn as those of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.parts.declared import kept
from hatrack.nets.model import Model
from hatrack.targets import Classification, Dense, Regression
from hatrack.tree import count


@dataclass
class Random(Method):
    """The lower reference: labels by training frequency, without looking at the input."""

    name: ClassVar[str] = "random"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Serrà et al. 2018"
    summary: ClassVar[str] = "draws labels by their training frequency; a lower reference"
    stores: ClassVar[str] = "8 bytes a class"
    trains: ClassVar[bool] = False
    targets: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "regression", "dense")

    log_frequency: list[Tensor] = kept("log_frequency", host=True)
    seeds: Tensor = kept("seeds", host=True)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.seeds = torch.zeros(0, dtype=torch.long)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.seeds = torch.cat([self.seeds, torch.randint(2**31, (1,), generator=generator)])
        counts = torch.ones(self.target.outputs, dtype=torch.float64)
        if isinstance(self.target, Classification | Dense):
            labels = feed.labels().cpu()
            labels = labels[labels != self.target.ignore_index] if isinstance(self.target, Dense) else labels
            counts = torch.bincount(self.target.strata(labels) if labels.ndim == 2 else labels, minlength=len(counts))
        self.log_frequency.append((counts / counts.sum()).double().log())

    def predict(self, x: Any, task: int) -> Tensor:
        log_frequency, target, device = self.log_frequency[task], self.model.targets[task], self.model.device
        if isinstance(target, Regression):
            return torch.zeros(count(x), target.outputs, device=device)
        places = torch.Size((count(x),))
        if target.units_axis is not None:
            places = self.model.logits(x, task).movedim(target.units_axis, -1).shape[:-1]
        draw = torch.Generator().manual_seed(int(self.seeds[task]))
        noise = torch.rand(*places, len(log_frequency), generator=draw, dtype=torch.float64)
        drawn = (log_frequency - (-noise.log()).log()).float().to(device)
        return drawn if target.units_axis is None else drawn.movedim(-1, target.units_axis)
