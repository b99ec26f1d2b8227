"""Accuracy where nobody says which task a sample is of: class-incremental scoring."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hatrack.errors import HatrackError


def free_accuracy(logits: Sequence[Sequence[Tensor]], labels: Sequence[Tensor]) -> float:
    """Return the share of samples whose own class has the highest of all logits, those of every task side by side.

    `logits[t][u]` is what task u's head says to the samples of task t, `labels[t]` their classes, counted from 0 within
    the task. Every sample counts the same, and of equal logits the first is taken.
    """
    widths = [[head.shape[1] for head in heads] for heads in logits]
    if len(labels) != len(logits) or any(len(heads) != len(logits) or heads != widths[0] for heads in widths):
        raise HatrackError(
            f"class-incremental accuracy needs logits of every head for the samples of every task, and their labels; "
            f"got labels of {len(labels)} tasks and heads of widths {widths}."
        )
    right = count = 0
    for task, (heads, y) in enumerate(zip(logits, labels, strict=True)):
        found = torch.cat(list(heads), dim=1).argmax(1)
        right += int((found == sum(widths[0][:task]) + y).sum())
        count += len(y)
    if not count:
        raise HatrackError("class-incremental accuracy needs at least one sample, got none.")
    return right / count
