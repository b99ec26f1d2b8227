"""Methods that hold the shared weights near where the last task left them (EWC and its kin, SI, IMM).

    loss ← loss + ½·Σ k·(θ − θ*)²        gradient ← gradient + k·(θ − θ*)        k = λ·w/(1 + lr·λ·w)

They differ in the weights w. Papers write k = λ·w, and so it is here wherever a step at the learning rate lr can
follow the pull; where lr·λ·w > 2 a step would overshoot and training diverge (Fisher values of one task span ten
orders of magnitude, so that a few such entries are the rule). There k stays below 1/lr, which takes an entry back to
its anchor in about one step: the implicit form of the same step.

The gradient is written out instead of left to autograd: it is cheaper, and the gradient of the task alone stays at
hand for those that need it. Heads are left out: a finished task's head gets no gradient, so that it never leaves its
anchor. The validation loss includes the term, as in HAT's baselines: the best epoch is the best compromise, not the
one that has drifted furthest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.methods.base import Method
from hatrack.nets.model import Model


class Pull:
    """½·Σ k·(θ − θ*)² and its gradient; k by name, or one figure for all entries."""

    def __init__(
        self, parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor], k: Mapping[str, Tensor] | float
    ) -> None:
        self._parameters = [parameters[name] for name in anchors]
        self._anchors = list(anchors.values())
        self._k: Any = k if isinstance(k, float) else [k[name] for name in anchors]

    def _towards(self, of: Sequence[int]) -> tuple[Any, Any]:
        """Return θ − θ* and k·(θ − θ*) of some parameters."""
        off: Any = torch._foreach_sub([self._parameters[i] for i in of], [self._anchors[i] for i in of])
        return off, torch._foreach_mul(off, self._k if isinstance(self._k, float) else [self._k[i] for i in of])

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the penalty, without a graph."""
        off, pull = self._towards(range(len(self._parameters)))
        return 0.5 * torch.stack([(a * b).sum() for a, b in zip(off, pull, strict=True)]).sum()

    @torch.no_grad()
    def on_gradients(self) -> None:
        """Add k·(θ − θ*) to the gradients."""
        moved = [i for i, p in enumerate(self._parameters) if p.grad is not None]
        if moved:
            gradients: Any = [self._parameters[i].grad for i in moved]
            torch._foreach_add_(gradients, self._towards(moved)[1])


@dataclass
class Anchored(Method):
    """Base of the methods with a quadratic penalty around the last task's weights."""

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.anchors: dict[str, Tensor] = {}
        self.weights: dict[str, Tensor] = {}
        self.pull: Pull | None = None

    def strength(self) -> float:
        """Return λ."""
        raise NotImplementedError

    def shared(self) -> dict[str, Tensor]:
        """Return the parameters that tasks share, by name."""
        own = self.model.private[self.task]
        return {name: p for name, p in self.model.parameters().items() if name not in own}

    def hold(self, weights: Mapping[str, Tensor]) -> None:
        """Anchor the next task at the weights as they are now; no `weights`: all entries count alike."""
        self.anchors = {name: p.detach().clone() for name, p in self.shared().items()}
        self.weights = dict(weights)

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        if self.anchors:
            lam, lr = self.strength(), self.lr
            k = {name: lam * w / (1 + lr * lam * w) for name, w in self.weights.items()}
            self.pull = Pull(self.shared(), self.anchors, k or lam / (1 + lr * lam))

    def loss(self, batch: Batch) -> Tensor:
        return self._with_penalty(super().loss(batch))

    def valid_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return self._with_penalty(super().valid_loss(logits, y))

    def _with_penalty(self, loss: Tensor) -> Tensor:
        return loss if self.pull is None else loss + self.pull.value()

    def after_backward(self) -> None:
        if self.pull is not None:
            self.pull.on_gradients()

    def state(self) -> dict[str, Tensor]:
        state = {f"anchor/{name}": t for name, t in self.anchors.items()}
        return state | {f"weight/{name}": t for name, t in self.weights.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.anchors, self.weights = self.stored(state, "anchor/"), self.stored(state, "weight/")

    def stored(self, state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """Return the tensors kept under `prefix`, by name."""
        device = self.model.device
        return {key.removeprefix(prefix): t.to(device) for key, t in state.items() if key.startswith(prefix)}
