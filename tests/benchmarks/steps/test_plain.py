"""The plain torch loop is torch's own: it trains, and nothing of hatrack works in its steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hatrack.bench.plain import PlainLoop
from hatrack.bench.sides import Case, Member, noise_task
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from hatrack.learn.machine.engine import Engine
from hatrack.learn.step import Stepper
from hatrack.methods.hat import HAT
from hatrack.nets.model import Model

CPU, SHAPE = torch.device("cpu"), (3, 6, 6)
RATES = (0.2, 0.5)


def small() -> nn.Module:
    convolution = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(RATES[0]), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*convolution, nn.Linear(32, 16), nn.ReLU(), nn.Dropout(RATES[1]))


def loop(net: nn.Module, steps: int = 2, lr: float = 0.1) -> PlainLoop:
    return PlainLoop(net, noise_task(steps, SHAPE), CPU, lr)


def test_it_trains() -> None:
    torch.manual_seed(0)
    plain = loop(nn.Sequential(nn.Flatten(), nn.Linear(108, 64), nn.ReLU()), lr=0.5)

    def loss() -> float:
        with torch.no_grad():
            return float(cross_entropy(plain.model(plain.x.float() / 255), plain.y))

    before, first = [p.detach().clone() for p in plain.model.parameters()], loss()
    plain()
    assert all(bool((p != old).any()) for p, old in zip(plain.model.parameters(), before, strict=True))
    for _ in range(30):
        plain()
    assert loss() < 0.8 * first


class Seen(TorchDispatchMode):
    """Counts operations, and keeps what goes into a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.rates: Counter[float] = Counter()
        self.into: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.calls[name] += 1
        if name == "bernoulli_":
            self.rates[round(1 - (args[1] if len(args) > 1 else 0.5), 6)] += 1  # torch leaves out its default
        if name in ("convolution", "addmm", "convolution_backward"):
            self.into += [arg for arg in args if isinstance(arg, Tensor) and arg.ndim > 1]
        return func(*args, **(kwargs or {}))


def test_every_step_is_what_torch_does_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in Member(Case(lambda: HAT(lr=0.1), 1, precision="bf16", net=small, shape=SHAPE), CPU, 2).epoch():
        pass  # whatever hatrack sets up to train must not outlast its steps

    def never(*_: object, **__: object) -> None:
        raise AssertionError("hatrack works in the plain torch loop")

    for owner, name in ((Stepper, "step"), (Stepper, "evaluate"), (Engine, "advance"), (Model, "__init__")):
        monkeypatch.setattr(owner, name, never)
    plain = loop(small(), steps=3)
    with Seen() as seen:
        plain()
    assert seen.calls["convolution"] == 3
    assert seen.rates == dict.fromkeys(RATES, 3)  # torch's own draw, a layer and step
    assert seen.into
    assert all(tensor.dtype == torch.float32 for tensor in seen.into)
    assert all(p.is_contiguous() and p.dtype == torch.float32 for p in plain.model.parameters())
    assert all(tensor.is_contiguous() for tensor in seen.into if tensor.ndim == 4)
    assert type(plain.optimizer) is torch.optim.SGD
    assert {type(module).__module__.split(".")[0] for module in plain.model.modules()} == {"torch"}


def test_the_networks_of_the_table_are_of_torchs_modules() -> None:
    from hatrack.bench.cpu import NETS

    for net in NETS:
        for module in net.make().modules():
            assert type(module).__module__.startswith("torch.nn")
            assert not any([module._forward_hooks, module._forward_pre_hooks, module._backward_hooks])
