"""What the learner remembers of a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from hatrack.data.inputs import Inputs
from hatrack.data.kind import Kind, Kinds
from hatrack.errors import HatrackError
from hatrack.learn.seeds import everywhere
from hatrack.learn.trial import first_line
from hatrack.learn.which.statistics import Statistics
from hatrack.targets import Target
from hatrack.targets.stored import Foreign
from hatrack.tree import leaves, mapped, sample

PROBES = 64


@dataclass(frozen=True)
class Learned:
    """What the learner remembers of a task."""

    name: str
    target: Target
    inputs: Inputs
    kind: Kind | Kinds
    which: Statistics | None = None  # by which its samples are known when nobody names it

    @property
    def classes(self) -> int:
        """How many outputs its head has."""
        return self.target.outputs

    def predicting(self, given: Target) -> Target:
        """Return what it predicts with the loss and the score of a target that is handed in again."""
        if isinstance(self.target, Foreign) and given.name == self.target.name and given.outputs == self.classes:
            return given
        if type(given) is not type(self.target) or given.outputs != self.classes:
            raise HatrackError(
                f"task {self.name!r} was learned as {self.target.name} with {self.classes} outputs, got {given.name} "
                f"with {given.outputs}; hand in a task of that kind."
            )
        return self.target.with_own(given.own_loss, given.own_score)

    def probes(self, seed: int, task: int, device: torch.device, count: int = PROBES) -> Any:
        """Return inputs such as it learned, as `kind` has them, drawn from the seed for task number `task`."""
        return mapped(lambda part: part.to(device), self.kind.draw(count, everywhere(seed, "probe", task)))

    def prepared(self, probes: Any, device: torch.device) -> Any:
        """Return probes as the network takes them."""
        return self.inputs.on(device)(probes) if self.kind.raw else probes

    def drawn(self, seed: int, task: int, device: torch.device, count: int = PROBES) -> Any:
        """Return prepared inputs such as it learned, drawn from the seed for task number `task`."""
        return self.prepared(self.probes(seed, task, device, count), device)

    def batch(self, given: Any, device: torch.device) -> Any:
        """Return raw inputs as a batch in numbers; refuse values of another range than those that it was trained on."""
        objection = self.kind.objection(given, bool(self.inputs.ids))
        if objection is not None:
            raise HatrackError(f"task {self.name!r}: {objection}.")
        raw = mapped(lambda part: self.inputs.as_numbers(part.to(device)), given)
        if [part.shape for part in leaves(raw)] == self.kind.shapes:
            raw = mapped(lambda part: part[None], raw)
        # forward() may write into it, which is refused for tensors of inference mode
        return mapped(lambda part: part.clone() if part.is_inference() else part, raw)

    @contextmanager
    def fitting(self, given: Any, raw: Any) -> Iterator[None]:
        """Say in one line what about the inputs the network may have stumbled over."""
        kind = self.kind
        try:
            yield
        except (RuntimeError, ValueError, IndexError) as error:
            if isinstance(kind, Kinds):
                raise HatrackError(
                    f"task {self.name!r} takes a batch of {kind}, got {sample(given)} ({first_line(error)})."
                ) from error
            taken = torch.float32 if kind.dtype == torch.uint8 and not self.inputs.ids else kind.dtype
            taken = torch.int64 if kind.dtype == torch.uint8 and self.inputs.ids else taken
            if (raw.shape[1:], raw.dtype) != (kind.shape, taken):
                raise HatrackError(
                    f"task {self.name!r} takes a batch of inputs of shape {kind.shape} and {taken}, got one of "
                    f"shape {tuple(given.shape)} and {given.dtype}."
                ) from error
            beyond = kind.beyond(given, bool(self.inputs.ids))
            if beyond is None:
                raise
            raise HatrackError(f"task {self.name!r}: {beyond} ({str(error).splitlines()[0]}).") from error


class Gone(Learned):
    """What the learner remembers of a task that was released: its name alone."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "name", name)

    def __repr__(self) -> str:
        return f"Gone({self.name!r})"
