"""A random classifier: draws each label with the frequency it has in the task's training set.

The logits are Gumbel noise plus the log frequencies, so that their argmax is such a draw; the noise comes from the
seed, the task and the inputs' position, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
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

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.log_frequency: list[Tensor] = []
        self.seeds: list[int] = []

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.seeds.append(int(torch.randint(2**31, (), generator=generator)))
        counts = torch.bincount(feed.labels().cpu(), minlength=self.model.heads[task].out_features).double()
        self.log_frequency.append((counts / counts.sum()).log())

    def predict(self, x: Tensor, task: int) -> Tensor:
        log_frequency = self.log_frequency[task]
        draw = torch.Generator().manual_seed(self.seeds[task])
        noise = torch.rand(len(x), len(log_frequency), generator=draw, dtype=torch.float64)
        return (log_frequency - (-noise.log()).log()).float().to(x.device)

    def state(self) -> dict[str, Tensor]:
        state = {f"log_frequency/{t}": f for t, f in enumerate(self.log_frequency)}
        return state | {"seeds": torch.tensor(self.seeds, dtype=torch.long)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.seeds = [int(s) for s in state["seeds"]]
        self.log_frequency = [state[f"log_frequency/{t}"].cpu() for t in range(len(self.seeds))]
