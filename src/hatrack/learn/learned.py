"""What the learner remembers of a task."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.data.kind import Kind
from hatrack.data.task import Inputs
from hatrack.learn.seeds import everywhere

PROBES = 64


@dataclass(frozen=True)
class Learned:
    """What the learner remembers of a task."""

    name: str
    classes: int
    inputs: Inputs
    kind: Kind

    def drawn(self, seed: int, task: int, device: torch.device, count: int = PROBES) -> Tensor:
        """Return prepared inputs such as it learned, drawn from the seed for task number `task`."""
        x = self.kind.draw(count, everywhere(seed, "probe", task)).to(device)
        return self.inputs.on(device)(x) if self.kind.raw else x
