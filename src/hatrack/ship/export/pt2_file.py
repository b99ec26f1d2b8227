"""torch.export's own file, which torch alone loads: torch.export.load(file).module()."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from hatrack import atomic
from hatrack.ship.export.needed import quiet
from hatrack.tree import leaves


def write_pt2(program: ExportedProgram, path: Path) -> None:
    """Write a traced network."""
    held = BytesIO()
    with quiet():
        torch.export.save(program, held)
    atomic.write(path, held.getvalue())


def load_pt2(path: Path) -> Callable[[Any], Tensor]:
    """Return what the file computes as a function of raw inputs."""
    with quiet():
        module = torch.export.load(BytesIO(path.read_bytes())).module()

    @torch.no_grad()
    def ask(x: Any) -> Tensor:
        answer: Tensor = module(*leaves(x))
        return answer

    return ask
