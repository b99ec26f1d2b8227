"""The published way of doing a HAT step, restated plainly, as the yardstick of `hatrack bench`.

It computes what the authors' program computes, in its manner: masks built anew in every forward pass, all heads
computed, one Python operation a parameter for the lock, the compensation, the clamp and the update, rows of a batch
sent to the device at every step. (The norm for the clip is torch's of today; that program's own fetched a number a
parameter, which would only make it slower.) It shares no code with hatrack. Networks and constants are those of Serrà
et al. 2018.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, max_pool2d, relu

S_MAX, C, CLIP, COSH, EMBEDDING = 400.0, 0.75, 10_000.0, 50.0, 6.0


class MaskedAlexNet(nn.Module):
    """Three convolutions, two wide layers, an embedding a layer and task, a head a task."""

    def __init__(self, tasks: int, classes: int) -> None:
        super().__init__()
        self.c1, self.c2, self.c3 = nn.Conv2d(3, 64, 4), nn.Conv2d(64, 128, 3), nn.Conv2d(128, 256, 2)
        self.fc1, self.fc2 = nn.Linear(1024, 2048), nn.Linear(2048, 2048)
        self.last = nn.ModuleList(nn.Linear(2048, classes) for _ in range(tasks))
        sizes = {"ec1": 64, "ec2": 128, "ec3": 256, "efc1": 2048, "efc2": 2048}
        for name, size in sizes.items():
            setattr(self, name, nn.Embedding(tasks, size))

    def masks(self, task: Tensor, s: float) -> list[Tensor]:
        tables = (self.ec1, self.ec2, self.ec3, self.efc1, self.efc2)
        return [torch.sigmoid(s * table(task)) for table in tables]  # type: ignore[operator]

    def forward(self, task: Tensor, x: Tensor, s: float) -> tuple[list[Tensor], list[Tensor]]:
        masks = self.masks(task, s)
        h = x
        for layer, rate, mask in zip((self.c1, self.c2, self.c3), (0.2, 0.2, 0.5), masks, strict=False):
            h = max_pool2d(dropout(relu(layer(h)), rate, self.training), 2)
            h = h * mask.view(1, -1, 1, 1).expand_as(h)
        h = h.flatten(1)
        for wide, mask in zip((self.fc1, self.fc2), masks[3:], strict=True):
            h = dropout(relu(wide(h)), 0.5, self.training)
            h = h * mask.expand_as(h)
        return [head(h) for head in self.last], masks

    def view(self, name: str, masks: list[Tensor]) -> Tensor | None:
        """Return min(mask above, mask below) in the shape of a parameter; None for heads and embeddings."""
        layers = ("c1", "c2", "c3", "fc1", "fc2")
        layer, _, kind = name.partition(".")
        if layer not in layers:
            return None
        place = layers.index(layer)
        post = masks[place].flatten()
        if kind == "bias":
            return post
        weight = getattr(self, layer).weight
        above = post.view(-1, *(1,) * (weight.ndim - 1)).expand_as(weight)
        if place == 0:
            return above
        pre = masks[place - 1].flatten()
        if layer == "fc1":
            pre = pre.view(-1, 1, 1).expand(256, 2, 2).contiguous().view(-1)
        below = pre.view(1, -1, *(1,) * (weight.ndim - 2)).expand_as(weight)
        return torch.min(above, below)


def published_step(
    device: torch.device, finished: int = 1, tasks: int = 8, classes: int = 10, size: int = 64
) -> Callable[[], None]:
    """Return a function that does one training step on task number `finished`."""
    torch.manual_seed(0)
    net = MaskedAlexNet(tasks, classes).to(device).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, foreach=False, fused=False)
    x = torch.rand(size * 10, 3, 32, 32, device=device)
    y = torch.arange(size * 10, device=device) % classes
    before: list[Tensor] | None = None
    for t in range(finished):
        new = [mask.detach() for mask in net.masks(torch.tensor([t], device=device), S_MAX)]
        before = new if before is None else [torch.max(a, b) for a, b in zip(before, new, strict=True)]
    views = {name: None if before is None else net.view(name, before) for name, _ in net.named_parameters()}
    keep = {name: 1 - view for name, view in views.items() if view is not None}
    place = 0

    def step() -> None:
        nonlocal place
        rows = torch.randperm(len(x))[:size].to(device)
        images, targets = x[rows], y[rows]
        task = torch.LongTensor([finished]).to(device)
        s = (S_MAX - 1 / S_MAX) * (place % 10) / 10 + 1 / S_MAX
        place += 1
        outputs, masks = net(task, images, s)
        price, count = torch.zeros((), device=device), torch.zeros((), device=device)
        if before is None:
            for mask in masks:
                count = count + mask.numel()
                price = price + mask.sum()
        else:
            for mask, old in zip(masks, before, strict=True):
                free = 1 - old
                price = price + (mask * free).sum()
                count = count + free.sum()
        loss = cross_entropy(outputs[finished], targets) + C * price / count
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        for name, parameter in net.named_parameters():
            if name in keep and parameter.grad is not None:
                parameter.grad.data *= keep[name]
        for name, parameter in net.named_parameters():
            if name.startswith("e") and parameter.grad is not None:
                over = torch.cosh(torch.clamp(s * parameter.data, -COSH, COSH)) + 1
                parameter.grad.data *= S_MAX / s * over / (torch.cosh(parameter.data) + 1)
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP, foreach=False)
        optimizer.step()
        for name, parameter in net.named_parameters():
            if name.startswith("e"):
                parameter.data = torch.clamp(parameter.data, -EMBEDDING, EMBEDDING)

    return step
