"""How much of a network is taken: shares of its parameters, layer by layer and in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from torch import Tensor

USED = 0.5


class Share(TypedDict):
    """A share of all parameters, and of each layer's."""

    total: float
    layers: dict[str, float]


def capacity(use: Mapping[str, Tensor], threshold: float = USED) -> Share:
    """Return the share of weights in use: those whose min(a_out, a_in), given by parameter name, is above 0.5."""
    return share({name: value > threshold for name, value in use.items()})


def blocked(passes: Mapping[str, Tensor]) -> Share:
    """Return the share of entries that are fully blocked: nothing of an update passes (importance 1 in SPG).

    `passes` gives, by parameter name, how much of an update each entry lets through: 0 locked, 1 free.
    """
    return share({name: value <= 0 for name, value in passes.items()})


def reuse(used: Sequence[Mapping[str, Tensor]]) -> list[list[float | None]]:
    """Return, at [i][j] for j > i, the share of the weights used by task i that task j uses again.

    `used` holds a task's boolean masks by parameter name. None below the diagonal, where task i uses nothing,
    and where nothing is known of one of them (no mask at all).
    """
    table: list[list[float | None]] = [[None] * len(used) for _ in used]
    for i, earlier in enumerate(used):
        size = sum(int(mask.sum()) for mask in earlier.values())
        for j in range(i + 1, len(used)):
            if size and used[j]:
                table[i][j] = sum(int((mask & used[j][name]).sum()) for name, mask in earlier.items()) / size
    return table


def share(marks: Mapping[str, Tensor]) -> Share:
    """Return the share of marked entries; weight and bias of one layer count together."""
    counts: dict[str, tuple[int, int]] = {}
    for name, mask in marks.items():
        layer = name.rpartition(".")[0] or name
        marked, size = counts.get(layer, (0, 0))
        counts[layer] = marked + int(mask.sum()), size + mask.numel()
    marked, size = (sum(column) for column in zip(*counts.values(), strict=True)) if counts else (0, 0)
    return {
        "total": marked / size if size else 0.0,
        "layers": {layer: m / n if n else 0.0 for layer, (m, n) in counts.items()},
    }
