"""Small networks that can do something already, as users train them: plain torch, a last layer of their own."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hatrack
from hatrack import Task


@cache
def digits() -> tuple[Task, Task]:
    first, second = hatrack.tasks("split-digits", seed=0)[:2]
    return first, second


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2))


def convolutional() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(12, 2),
    )  # fmt: skip


def taught(net: nn.Sequential, epochs: int = 6) -> tuple[nn.Sequential, nn.Linear]:
    """Return network and last layer, trained on the first two digits by a plain loop."""
    torch.manual_seed(0)
    x, y = ready(digits()[0])
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
    net.eval()
    return net[:-1], net[-1]  # type: ignore[return-value]


def ready(task: Task) -> tuple[Tensor, Tensor]:
    """Return training samples as the network takes them."""
    x, y = task.train.on(torch.device("cpu"))
    return task.inputs.on(torch.device("cpu"))(x), y


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.detach().view(torch.int32), b.detach().view(torch.int32))
