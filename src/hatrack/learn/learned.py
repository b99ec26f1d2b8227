"""What the learner remembers of a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.data.kind import Kind
from hatrack.data.task import Inputs, as_floats
from hatrack.errors import HatrackError
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

    def batch(self, given: Tensor, device: torch.device) -> Tensor:
        """Return raw inputs as a batch in numbers; refuse values of another range than those that it was trained on."""
        objection = self.kind.objection(given)
        if objection is not None:
            raise HatrackError(f"task {self.name!r}: {objection}.")
        raw = as_floats(given.to(device))
        if raw.shape == self.kind.shape:
            raw = raw[None]
        return raw.clone() if raw.is_inference() else raw  # forward() may write into it, which is refused for such

    @contextmanager
    def fitting(self, given: Tensor, raw: Tensor) -> Iterator[None]:
        """Say in one line what about the inputs the network may have stumbled over."""
        kind = self.kind
        try:
            yield
        except (RuntimeError, ValueError, IndexError) as error:
            taken = torch.float32 if kind.dtype == torch.uint8 else kind.dtype
            if (raw.shape[1:], raw.dtype) != (kind.shape, taken):
                raise HatrackError(
                    f"task {self.name!r} takes a batch of inputs of shape {kind.shape} and {taken}, got one of "
                    f"shape {tuple(given.shape)} and {given.dtype}."
                ) from error
            beyond = kind.beyond(given)
            if beyond is None:
                raise
            raise HatrackError(f"task {self.name!r}: {beyond} ({str(error).splitlines()[0]}).") from error
