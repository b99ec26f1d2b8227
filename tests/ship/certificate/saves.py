"""Saved learners to be tampered with: taught ones, and what edits their files as an attacker would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hatrack import Inputs, Learner, Task
from hatrack.learn import state
from hatrack.methods import METHODS


class Mixed(nn.Module):
    """Convolutions with batch and group norm, a layer norm, a layer that nobody trains, a buffer that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.second, self.group = nn.Conv2d(4, 4, 2), nn.GroupNorm(2, 4)
        self.layer, self.across = nn.Linear(4, 6), nn.LayerNorm(6)
        self.fixed = nn.Linear(6, 5)
        self.fixed.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = torch.relu(self.group(self.second(x))).mean((2, 3))
        return torch.relu(self.fixed(torch.relu(self.across(self.layer(x))))) * self.scale


def task(i: int) -> Task:
    x = torch.randn(24, 1, 5, 5, generator=torch.Generator().manual_seed(i))
    return Task(f"t{i}", (x, (x.flatten(1)[:, i] > 0).long()), inputs=Inputs((0.1,), (0.9,)))


def taught(method: str, count: int = 3, net: Callable[[], nn.Module] = Mixed, **options: Any) -> Learner:
    torch.manual_seed(0)
    learner = Learner(net(), METHODS[method](**options), epochs=1, batch_size=8, device="cpu")
    for i in range(count):
        learner.learn(task(i), progress=False)
    return learner


def copied(folder: Path, name: str | None = None) -> Path:
    """Return a fresh copy beside a folder."""
    other = folder.parent / (name or f"{folder.name}-edited")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(folder, other)
    return other


def page_of(folder: Path) -> dict[str, Any]:
    page: dict[str, Any] = json.loads((folder / "learner.json").read_text())
    return page


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of a saved learner whose page was changed; its own digest is not looked at by the checker."""
    other = copied(folder)
    page = page_of(other)
    change(page)
    (other / "learner.json").write_text(json.dumps(page))
    return other


def rewrite(folder: Path, kind: str, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """Return a copy in which one tensor file was changed, new names included, and is still named by the page."""
    other = copied(folder)
    page = page_of(other)
    entry = page["files"][kind]
    held = load_file(other / entry["name"])
    tensors = {name: held[entry["same"].get(name, name)].clone() for name in entry["order"]}
    change(tensors)
    save_file(tensors, other / entry["name"])
    entry |= {"order": list(tensors), "same": {}}
    (other / "learner.json").write_text(json.dumps(page))
    return other


def places(path: Path) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Return where each tensor of a safetensors file lies in it, and what its header says of it."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    return {
        n: (start + about["data_offsets"][0], start + about["data_offsets"][1], about) for n, about in header.items()
    }


def flip(path: Path, place: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(bytes(data))


def answers(folder: Path, net: Callable[[], nn.Module], x: Tensor, count: int) -> list[Tensor] | None:
    """Return what the learner in a folder answers for its first tasks, whatever is wrong with its files; None: nothing.

    By their names and by their numbers, prepared in the ways of the task.
    """
    try:
        learner = state._load(folder, net(), None, None, "cpu", "auto", None, [])
        return [learner.predict(x, key) for t in range(count) for key in (t, f"t{t}")]
    except Exception:  # what cannot be loaded answers nothing
        return None
