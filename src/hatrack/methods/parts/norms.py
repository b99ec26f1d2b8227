"""What becomes of norms that keep running statistics (batch norm), and of other buffers that training moves.

Such a norm has statistics of *data*, and data change from task to task: sharing them changes old tasks even when no
weight moves. The ResNet study (Dinu 2019) found that masks work on residual networks only with norms of their own
for every task.
"""

from __future__ import annotations

from torch import Tensor

from hatrack.nets.model import Model

NORMS = ("task", "shared", "frozen")
NORM_HELP = (
    "batch norm: 'task' = own copy a task; 'frozen' = statistics of task 1 for all, may fit later tasks badly; "
    "'shared' = one for all, old tasks drift"
)


def private_norms(model: Model, norm: str) -> dict[str, Tensor]:
    """Return the tensors that every task keeps for itself under the option `norm`, as they are at its start."""
    if norm != "task":
        return {}
    moved = [name for task in model.remaining[:1] for name in model.private[task]]  # buffers found to move among them
    return {name: model.initial[name] for name in dict.fromkeys([*model.norm_tensors(), *moved])}
