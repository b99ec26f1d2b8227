"""A benchmark whose tasks predict different things of the same figures, and a network: hatrack study … file.py:make."""

import torch
from torch import nn

from hatrack import Task, targets


def make(seed: int, errors: bool = False) -> list[Task]:
    """Return three tasks of three targets; `errors`: two regressions, scored by their mean absolute error."""
    x = torch.randn(160, 6, generator=torch.Generator().manual_seed(seed))
    total = x[:, :3].sum(1)

    def mae(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (output - y).abs().mean()

    score = targets.Gathered(mae, "MAE", larger_is_better=False)
    given = [("sign", (total > 0).long(), None, None), ("sum", total, targets.Regression(), None)]
    given.append(("each", (x[:, :2] > 0).float(), targets.MultiLabel(), None))
    if errors:
        given = [(name, 10 * y, targets.Regression(), score) for name, y in (("sum", total), ("first", x[:, 0]))]
    rows = (slice(96), slice(96, 128), slice(128, 160))
    return [Task(name, *((x[r], y[r]) for r in rows), target=t, score=s) for name, y, t, s in given]


def net(shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
