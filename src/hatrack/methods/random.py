"""A random classifier: draws each label with the frequency it has in the task's training set.

The logits are Gumbel noise plus the log frequencies, so that their argmax is such a draw; the noise comes from the
seed, the task and the inputs' position, so that a run can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.parts.declared import kept
from hatrack.nets.model import Model


@dataclass
class Random(Method):
    """The lower reference: labels by training frequency, without looking at the input."""

    name: ClassVar[str] = "random"
    family: ClassVar[str] = "references"
    source: ClassVar[str] = "Serrà et al. 2018"
    summary: ClassVar[str] = "draws labels by their training frequency; a lower reference"
    stores: ClassVar[str] = "8 bytes a class"
    trains: ClassVar[bool] = False

    log_frequency: list[Tensor] = kept("log_frequency", host=True)
    seeds: Tensor = kept("seeds", host=True)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.seeds = torch.zeros(0, dtype=torch.long)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.seeds = torch.cat([self.seeds, torch.randint(2**31, (1,), generator=generator)])
        counts = torch.bincount(feed.labels().cpu(), minlength=self.model.heads[task].out_features).double()
        self.log_frequency.append((counts / counts.sum()).log())

    def predict(self, x: Tensor, task: int) -> Tensor:
        log_frequency = self.log_frequency[task]
        draw = torch.Generator().manual_seed(int(self.seeds[task]))
        noise = torch.rand(len(x), len(log_frequency), generator=draw, dtype=torch.float64)
        return (log_frequency - (-noise.log()).log()).float().to(x.device)
