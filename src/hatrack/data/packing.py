"""Targets of several tasks side by side, whatever their shapes: labels of one, figures of another."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad


class Packing:
    """One row of float64 a sample, which holds labels and float32 exactly; shorter ones are padded."""

    def __init__(self, targets: Mapping[int, Tensor]) -> None:
        self._forms = {task: (y.shape[1:], y.dtype) for task, y in targets.items()}
        self._width = max(shape.numel() for shape, _ in self._forms.values())
        self.needed = len(set(self._forms.values())) > 1

    def packed(self, y: Tensor) -> Tensor:
        rows = y.reshape(len(y), -1).double()
        return pad(rows, (0, self._width - rows.shape[1]))

    def unpacked(self, task: int, rows: Tensor) -> Tensor:
        """Return the targets that stand in rows of one task, which may be none, also of a task that has none here."""
        shape, dtype = self._forms.get(task, (torch.Size(), rows.dtype))
        return rows[:, : shape.numel()].reshape(len(rows), *shape).to(dtype)
