"""Somebody else's method, network and benchmark, as a file, a module and an installed package."""

from __future__ import annotations

from pathlib import Path

TEXT = '''"""Things of somebody's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import nn

import hatrack
from hatrack.measure import Measure
from hatrack.methods.hyper import hyper
from hatrack.methods.sgd import SGD


@dataclass
class Mine(SGD):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "a method of somebody's own"

    pull: float = hyper(0.5, "how hard it pulls", low=0.0, search=(0.1, 1.0, "linear"))

    def facts(self):
        return {"pull": self.pull}


def make_net(shape: Sequence[int], width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), width), nn.ReLU())


class Net(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(4, width)

    def forward(self, x):
        return torch.relu(self.layer(x))


best = Measure("best", "best task", "the highest accuracy at the end", lambda result: max(result["accuracy"][-1]))


def make_tasks(seed: int, count: int = 2) -> list[hatrack.Task]:
    """Two classes on either side of a line."""
    draw = torch.Generator().manual_seed(seed)

    def part(rows):
        x = torch.randn(rows, 4, generator=draw)
        return x, (x[:, 0] > 0).long()

    return [hatrack.Task(f"half {i}", part(40), part(16), part(16)) for i in range(count)]
'''


def file(folder: Path, name: str = "mine.py", text: str = TEXT) -> Path:
    """Write the file into a folder, made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def installed(site: Path, package: str, entries: str, version: str = "1.2", text: str = TEXT) -> None:
    """Install a package of one module of its name, with entry points, into a folder that is to be on sys.path."""
    about = site / f"{package}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(entries)
    (site / f"{package}.py").write_text(text)
