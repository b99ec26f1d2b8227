"""A method on one of five small networks, before tasks of real digits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from json import loads
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hatrack.data.benchmarks import tasks as benchmark
from hatrack.data.task import Task
from hatrack.learn.fit import Epoch
from hatrack.learn.learner import Learner
from hatrack.learn.state import load
from hatrack.methods import METHODS
from hatrack.methods.base import Method
from hatrack.nets import build


def _conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(),
    )  # fmt: skip


class Residual(nn.Module):
    """A shortcut around a convolution, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.branch = nn.Conv2d(6, 6, 3, padding=1)
        self.last = nn.Sequential(nn.Flatten(), nn.Linear(96, 12), nn.ReLU(), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return torch.relu(self.last(torch.relu(x + self.branch(x))))


def _positions() -> nn.Module:
    """Features at every position, which heads can read together or one by one."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.AvgPool2d(4), nn.Conv2d(16, 16, 3, padding=1), nn.Tanh()
    )


class Branching(nn.Module):
    """A network whose forward pass asks the data which way to go: no unit map can be traced through it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 24)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(x.flatten(1))
        return torch.relu(h) if float(h.detach().sum()) > 0 else torch.tanh(h)


_mlp = partial(build, "mlp", (1, 8, 8), widths=(64, 64), dropout=0.1, input_dropout=0.0)
NETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": _mlp, "conv": _conv, "residual": Residual, "branching": Branching, "positions": _positions,
}  # fmt: skip
EPOCHS = {"mlp": 8, "conv": 5}  # in which most methods learn two digits


@cache
def digits(samples: int | None = None) -> list[Task]:
    """Return three tasks of real digits, with a part of their samples."""
    whole = benchmark("split-digits", seed=0)[:3]
    if samples is None:
        return list(whole)
    some = torch.arange(samples)
    return [Task(t.name, t.train.take(some), t.valid, t.test, inputs=t.inputs) for t in whole]


@dataclass
class Trained:
    """A learner of two tasks, and what was kept on the way."""

    learner: Learner
    right_after: list[float] = field(default_factory=list)  # accuracy of each task when it had just been learned
    first: dict[str, Tensor] = field(default_factory=dict)  # all that answers for the first task, when just learned
    mid: dict[int, Path] = field(default_factory=dict)  # saved in the middle of the second task, by phase


@dataclass
class Case:
    """A method with its settings on one of the networks; `folder` is for what is saved."""

    method: type[Method]
    net: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    refusal: str | None = None
    refused: dict[str, str] = field(default_factory=dict)  # why, by the target's name

    def network(self, seed: int = 0) -> nn.Module:
        """Return the network with fresh weights."""
        torch.manual_seed(seed)
        return NETS[self.net]()

    def learner(self, **options: Any) -> Learner:
        """Return a learner that has learned nothing yet."""
        given = {"epochs": self.epochs or EPOCHS.get(self.net), "batch_size": 20, "device": "cpu"} | options
        return Learner(self.network(), self.method(**self.settings), **given)

    def loaded(self, folder: Path, tasks: Sequence[Task], seed: int = 5) -> Learner:
        """Return what was saved, over a network with other weights."""
        known = METHODS.get(self.method.name) is self.method
        method = None if known else self.method(**self.settings)
        learner = load(folder, self.network(seed), method, device="cpu")
        if learner.method.needs_old_data:
            for task in tasks[: learner.finished]:
                learner.remember(task)
        return learner

    @property
    def promises(self) -> bool:
        """Whether finished tasks must not change at all, with these settings."""
        return self.method(**self.settings).promises()

    @cached_property
    def tasks(self) -> list[Task]:
        return digits(160)[:2]

    @cached_property
    def trained(self) -> Trained:
        """Both learned; what many behaviours look at."""
        trained, seen = Trained(self.learner()), Counter[int]()
        learner = trained.learner

        def save(epoch: Epoch) -> None:
            seen[epoch.phase] += 1
            if seen[epoch.phase] in (1, 3):  # a phase may have one epoch only
                trained.mid[epoch.phase] = self.folder / f"{self.net}-phase{epoch.phase}"
                learner.save(trained.mid[epoch.phase])

        learner.learn(self.tasks[0])
        trained.right_after.append(learner.evaluate(self.tasks[0], 0))
        trained.first = self.answers(learner)
        learner.learn(self.tasks[1], on_epoch=save)
        trained.right_after.append(learner.evaluate(self.tasks[1], 1))
        return trained

    def answers(self, learner: Learner) -> dict[str, Tensor]:
        """Return what must be the same bit for bit in two learners that are the same."""
        x = self.tasks[0].train.first(40)
        logits = {f"logits of task {t}": learner.predict(x, t) for t in range(learner.finished)}
        return {name: t.detach().clone() for name, t in (logits | learner.model.tensors()).items()}

    def held(self, learner: Learner) -> dict[str, Any]:
        """Return all that a save says of a learner, and the network's modes."""
        modes = [module.training for module in learner.model.net.modules()]
        page = held(learner, self.folder / "held")
        return page | {"modes": modes, "example": learner.model.example is not None}


def held(learner: Learner, folder: Path) -> dict[str, Any]:
    """Save a learner and return what the save says: the SHA-256 of all tensors, and every number."""
    learner.save(folder)
    page: dict[str, Any] = loads((folder / "learner.json").read_text())
    return page


def differing(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> list[str]:
    """Name what is not the same, bit by bit, in two sets of tensors."""
    raw = [{name: t.contiguous().flatten().view(torch.uint8) for name, t in c.items()} for c in (a, b)]
    return [n for n in a.keys() | b.keys() if n not in a or n not in b or not torch.equal(raw[0][n], raw[1][n])]
