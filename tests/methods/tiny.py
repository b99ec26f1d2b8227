"""A tiny perceptron in float64 beside its restatement in numpy, for tests of one method's rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from hatrack.data.feed import Batch, Feed, Part
from hatrack.data.task import Task
from hatrack.learn.step import Stepper, build
from hatrack.methods.base import Method
from hatrack.nets import build as build_net
from hatrack.nets.model import Model
from hatrack.targets import Classification

Arrays = dict[str, np.ndarray]
INPUTS = 6


def model(heads: Sequence[int] = (3,), dropout: float = 0.0) -> Model:
    """Return a perceptron 6 → 5 → 4 with biases that are not zero, and heads of the given numbers of classes."""
    torch.manual_seed(0)
    net = build_net("mlp", (INPUTS,), widths=(5, 4), dropout=dropout, input_dropout=0.0).double()
    for layer in (net.fc1, net.fc2):
        nn.init.normal_(layer.bias, std=0.3, generator=torch.Generator().manual_seed(9))
    made = Model(net, torch.device("cpu"))
    made.meet(torch.zeros(1, INPUTS, dtype=torch.float64))
    for seed, classes in enumerate(heads):
        add_head(made, classes, seed)
    return made


def add_head(to: Model, classes: int, seed: int = 0) -> None:
    to.add_task(Classification(classes), torch.Generator().manual_seed(seed))
    to.heads[-1].double()


def samples(seed: int, n: int = 24, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    y[:classes] = np.arange(classes)
    return rng.normal(size=(n, INPUTS)), y


def batch(x: np.ndarray, y: np.ndarray) -> Batch:
    return Batch(torch.from_numpy(x), torch.from_numpy(y))


def feed(x: np.ndarray, y: np.ndarray, task: int = 0) -> Feed:
    made = Task("t", (torch.from_numpy(x), torch.from_numpy(y)))
    return Feed([Part(task, made.train, made.inputs, made.target)], torch.device("cpu"))


def begin(method: Method, task: int, x: np.ndarray, y: np.ndarray) -> Stepper:
    """Begin a task and return what makes its steps."""
    method.begin_task(task, feed(x, y, task), torch.Generator().manual_seed(2))
    method.begin_epoch()
    return Stepper(method, build(method, None))


def arrays(of: Model, head: int | None = None) -> Arrays:
    """Return copies of the network's parameters, and a head's, as float64 arrays."""
    found = {name: p.detach().numpy().copy() for name, p in of.net.named_parameters()}
    if head is not None:
        found |= {f"head.{n}": p.detach().numpy().copy() for n, p in of.heads[head].named_parameters()}
    return found


# ---- the restatement


def forward(p: Arrays, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    z1 = x @ p["fc1.weight"].T + p["fc1.bias"]
    h1 = np.maximum(z1, 0)
    z2 = h1 @ p["fc2.weight"].T + p["fc2.bias"]
    return z1, h1, z2, np.maximum(z2, 0)


def logits(p: Arrays, x: np.ndarray) -> np.ndarray:
    return forward(p, x)[3] @ p["head.weight"].T + p["head.bias"]


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def cross_entropy(p: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(softmax(logits(p, x))[np.arange(len(y)), y]).mean())


def backward(p: Arrays, x: np.ndarray, at_logits: np.ndarray) -> Arrays:
    """Return the gradient of all parameters, given that at the logits."""
    z1, h1, z2, h2 = forward(p, x)
    found = {"head.weight": at_logits.T @ h2, "head.bias": at_logits.sum(0)}
    return found | backward_features(p, x, at_logits @ p["head.weight"], (z1, h1, z2))


def backward_features(p: Arrays, x: np.ndarray, at_features: np.ndarray, seen: tuple[np.ndarray, ...]) -> Arrays:
    z1, h1, z2 = seen
    d2 = at_features * (z2 > 0)
    d1 = (d2 @ p["fc2.weight"]) * (z1 > 0)
    return {"fc2.weight": d2.T @ h1, "fc2.bias": d2.sum(0), "fc1.weight": d1.T @ x, "fc1.bias": d1.sum(0)}


def gradient(p: Arrays, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Return the gradient of the mean cross-entropy."""
    d = softmax(logits(p, x))
    d[np.arange(len(y)), y] -= 1
    return backward(p, x, d / len(y))


def clipped(g: Arrays, limit: float) -> Arrays:
    norm = np.sqrt(sum((v**2).sum() for v in g.values()))
    return {k: v * min(1.0, limit / (norm + 1e-6)) for k, v in g.items()}


def fisher(p: Arrays, x: np.ndarray, y: np.ndarray, size: int = 20) -> Arrays:
    """Σ_b |b|·g_b²/N, batch by batch."""
    total = {name: np.zeros_like(v) for name, v in p.items()}
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        for name, g in gradient(p, x[part], y[part]).items():
            total[name] += len(y[part]) * g**2
    return {name: v / len(y) for name, v in total.items() if not name.startswith("head.")}


def held(g: np.ndarray, k: np.ndarray, off: np.ndarray, lr: float) -> np.ndarray:
    """What plain SGD must be given so that its step is the implicit one: θ* + (off − lr·g)/(1 + lr·k)."""
    return (off - (off - lr * g) / (1 + lr * k)) / lr


def close(got: Arrays, expected: Arrays, **tolerance: float) -> None:
    """Assert that arrays agree name by name."""
    assert set(got) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, err_msg=name, **{"rtol": 1e-9, "atol": 1e-12, **tolerance})


def as_arrays(tensors: dict[str, torch.Tensor]) -> Arrays:
    return {name: t.detach().numpy().copy() for name, t in tensors.items()}
