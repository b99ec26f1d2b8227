"""The plain torch loop, the unit of a CPU's table: what a user writes who has a network, a head and pictures.

Eager float32 in torch's own layout, torch's own dropout, cross-entropy, `torch.optim.SGD`. Nothing of hatrack works in
its steps: however hatrack draws its masks, lays out its tensors and rounds its products, this loop stays as it is.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hatrack.data.task import Task

from .sides import BATCH


class PlainLoop:
    """A network with a linear head on a task's pictures, which lie on the device as bytes; a call is an epoch."""

    def __init__(self, net: nn.Module, task: Task, device: torch.device, lr: float) -> None:
        self.x, self.y = task.train.on(device)
        net.to(device)
        with torch.no_grad():
            features = net(self.x[:1].float() / 255).shape[1]
        self.model = nn.Sequential(net, nn.Linear(features, task.classes, device=device)).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def __call__(self) -> None:
        for rows in torch.randperm(len(self.x), device=self.x.device).split(BATCH):
            loss = cross_entropy(self.model(self.x[rows].float() / 255), self.y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
