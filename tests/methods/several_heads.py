"""Gradients of a network with several heads in numpy: the logits of all of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tiny import Arrays, arrays, backward_features, forward, logits, softmax

from hatrack.nets.model import Model


class SeveralHeads:
    """A network with its heads, as float64 arrays."""

    def __init__(self, model: Model) -> None:
        self.nets = [arrays(model, t) for t in range(len(model.heads))]
        self.widths = [len(p["head.bias"]) for p in self.nets]
        self.starts = np.cumsum([0, *self.widths])

    def logits(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([logits(p, x) for p in self.nets], axis=1)

    def columns(self, task: int, everything: bool) -> slice:
        """The logits that a sample of a task is told from."""
        return slice(0, None) if everything else slice(self.starts[task], self.starts[task + 1])

    def cross_entropy(
        self, x: np.ndarray, y: np.ndarray, source: np.ndarray, everything: bool
    ) -> tuple[float, np.ndarray]:
        """Return the mean over samples, and its gradient at the logits."""
        z, loss = self.logits(x), 0.0
        at = np.zeros_like(z)
        for i, task in enumerate(source):
            own, column = self.columns(task, everything), self.starts[task] + y[i]
            p = softmax(z[i : i + 1, own])[0]
            at[i, own] = p
            at[i, column] -= 1
            loss -= np.log(p[column - (own.start or 0)])
        return loss / len(y), at / len(y)

    def strayed(
        self, x: np.ndarray, then: np.ndarray, source: np.ndarray, everything: bool
    ) -> tuple[float, np.ndarray]:
        """Return the mean square of what was answered then against now, a mean for each sample first."""
        z, loss = self.logits(x), 0.0
        at = np.zeros_like(z)
        for i, task in enumerate(source):
            own = slice(0 if everything else self.starts[task], self.starts[task + 1])
            gap = z[i, own] - then[i, : own.stop - own.start]
            loss += (gap**2).mean()
            at[i, own] = 2 * gap / len(gap)
        return loss / len(then), at / len(then)

    def gradient(self, x: np.ndarray, at: np.ndarray) -> Arrays:
        """Return the gradient of all parameters, given that at the logits."""
        z1, h1, z2, h2 = forward(self.nets[0], x)
        heads = np.concatenate([p["head.weight"] for p in self.nets])
        found = backward_features(self.nets[0], x, at @ heads, (z1, h1, z2))
        for t in range(len(self.nets)):
            own = self.columns(t, False)
            found |= {f"{t}.head.weight": at[:, own].T @ h2, f"{t}.head.bias": at[:, own].sum(0)}
        return found

    def step(self, gradients: Sequence[Arrays], lr: float) -> None:
        """Go down the sum of gradients."""
        total = {name: sum(g[name] for g in gradients) for name in gradients[0]}
        for t, p in enumerate(self.nets):
            for name in p:
                p[name] = p[name] - lr * total[f"{t}.{name}" if name.startswith("head.") else name]


def by_differences(
    loss: Callable[[], float], array: np.ndarray, places: Sequence[int], step: float = 1e-6
) -> list[float]:
    """Return central differences of a loss at some places of an array that it is computed from."""
    flat, found = array.reshape(-1), []
    for place in places:
        value = flat[place]
        flat[place] = value + step
        above = loss()
        flat[place] = value - step
        found.append((above - loss()) / (2 * step))
        flat[place] = value
    return found
