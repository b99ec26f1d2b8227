"""A tiny float64 model with a method attached, for comparing a method's rule with a computation by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from hatrack import Task
from hatrack.data.feed import Feed, Part
from hatrack.methods.base import Method
from hatrack.nets import build
from hatrack.nets.model import Model
from hatrack.targets import Classification

CPU = torch.device("cpu")


def random_task(name: str, seed: int, shape: tuple[int, ...] = (6,), classes: int = 3, n: int = 24) -> Task:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, *shape)), rng.integers(classes, size=n)
    y[:classes] = np.arange(classes)
    return Task(name, (x, y), (x, y), (x, y))


def small_mlp(widths: tuple[int, ...] = (5, 4)) -> nn.Module:
    torch.manual_seed(0)
    net = build("mlp", (6,), widths=widths, dropout=0.0, input_dropout=0.0).double()
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return net


def start(method: Method, net: nn.Module | None = None, shape: tuple[int, ...] = (6,), classes: int = 3) -> Model:
    """Attach a method to a float64 model that knows its input, and hand the model back."""
    model = Model(small_mlp() if net is None else net, CPU)
    model.meet(torch.zeros(1, *shape, dtype=torch.float64))
    method.attach(model)
    return model


def next_task(method: Method, classes: int = 3, shape: tuple[int, ...] = (6,), seed: int = 0) -> Feed:
    """Add a head and begin the next task, as the learner does."""
    model = method.model
    index = len(model.heads)
    model.add_task(Classification(classes), torch.Generator().manual_seed(index), method.private())
    model.heads[-1].double()
    task = random_task(f"t{index}", seed + index, shape, classes)
    feed = Feed([Part(index, task.train, task.inputs, task.target)], CPU)
    with torch.random.fork_rng():
        torch.manual_seed(index)
        method.begin_task(index, feed, torch.Generator().manual_seed(10 + index))
    return feed


def scramble(tensors: dict[str, torch.Tensor], seed: int = 0, scale: Callable[[str], float] = lambda _: 1.0) -> None:
    """Fill tensors with random numbers."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(scale(name) * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(
        a.detach().flatten().view(torch.uint8), b.detach().flatten().view(torch.uint8)
    )
