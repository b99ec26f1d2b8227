"""Which weights tasks use, small enough to keep and to look at: shares in at most SIDE × SIDE fields a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from hatrack.methods.base import Method

SIDE = 128
TOGETHER = "all"  # in place of a task's number


def used_fields(method: Method, tasks: Iterable[int]) -> dict[str, Tensor] | None:
    """Return "weights/<task>/<parameter>" → fields, for parameters of two axes or more; None where nothing is known.

    Of a method that does not say what a single task uses (Fisher masks, SPG), what all tasks so far hold back together,
    as task TOGETHER.
    """
    used: dict[str, Mapping[str, Tensor]] = {str(task): use for task in tasks if (use := method.use(task)) is not None}
    if not used:
        used = {TOGETHER: method.occupied() or {}}
    fields = {
        f"weights/{task}/{name}": binned(amount)
        for task, amounts in used.items()
        for name, amount in amounts.items()
        if amount.ndim > 1
    }
    return fields or None


def binned(amount: Tensor, side: int = SIDE) -> Tensor:
    """Return the means over neighbouring entries, in bytes of which 255 is whole.

    A row is an output, a column an input, kernels one after another. All fields hold equally many entries, but for the
    last ones.
    """
    table = amount.detach().cpu().flatten(1).double().numpy()
    for axis, size in enumerate(table.shape):
        starts = np.arange(0, size, -(-size // side))
        counts = np.expand_dims(np.diff([*starts, size]), 1 - axis)
        table = np.add.reduceat(table, starts, axis=axis) / counts
    return torch.from_numpy(np.round(255 * table).astype(np.uint8))
