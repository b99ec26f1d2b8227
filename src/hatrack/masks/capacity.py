"""How much of the network is taken, and how much of it later tasks use again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hatrack.masks.unitmap import UnitMap, layer_of

USED = 0.5  # a weight counts as used when its smallest gate is above one half


def used_weights(units: UnitMap, gates: Tensor) -> dict[str, Tensor]:
    """Return which entries of every weight (two axes or more) min(a_out, a_in) > 0.5 marks as used."""
    weights = {name: None for name, shape in units.shapes.items() if len(shape) > 1 and name in units.uses}
    return {name: value > USED for name, value in units.used(gates).items() if name in weights}


def capacity(units: UnitMap, gates: Tensor) -> dict[str, Any]:
    """Return the share of used weights: in all, and layer by layer."""
    used: dict[str, list[int]] = {}
    for name, mask in used_weights(units, gates).items():
        count = used.setdefault(layer_of(name), [0, 0])
        count[0] += int(mask.sum())
        count[1] += mask.numel()
    total, size = sum(u for u, _ in used.values()), sum(n for _, n in used.values())
    return {"total": total / max(size, 1), "layers": {layer: u / n for layer, (u, n) in used.items()}}


def reuse(units: UnitMap, gates: Sequence[Tensor]) -> list[list[float | None]]:
    """Return, at [i][j] for j > i, the share of the weights used by task i that task j uses again."""
    used = [used_weights(units, g) for g in gates]
    table: list[list[float | None]] = [[None] * len(used) for _ in used]
    for i, earlier in enumerate(used):
        size = sum(int(mask.sum()) for mask in earlier.values())
        for j in range(i + 1, len(used)):
            again = sum(int((mask & used[j][name]).sum()) for name, mask in earlier.items())
            table[i][j] = again / size if size else 0.0
    return table
