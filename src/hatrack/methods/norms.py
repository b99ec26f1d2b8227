"""What masking methods do with norms that keep running statistics (batch norm).

Such a norm has statistics of *data*, and data change from task to task: sharing them changes old tasks even when no
weight moves. The ResNet study (Dinu 2019) found that masks work on residual networks only with norms of their own
for every task.
"""

from __future__ import annotations

from hatrack.nets.model import Model

NORMS = ("task", "shared", "frozen")
NORM_HELP = (
    "batch norm: 'task' = own copy a task; 'frozen' = statistics of task 1 for all, may fit later tasks badly; "
    "'shared' = one for all, old tasks drift"
)


def private_norms(model: Model, norm: str) -> list[str]:
    """Name the tensors that every task keeps for itself under the option `norm`."""
    if norm != "task":
        return []
    moved = [name for name in (model.private[0] if model.private else {}) if name not in model.norm_tensors()]
    return [*model.norm_tensors(), *moved]
