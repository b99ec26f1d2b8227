"""Holding the shared weights near where the last task left them (EWC and its kin, SI, IMM).

    loss     + ½·Σ k·(θ − θ*)², k = λ·w; methods differ in the weights w
    gradient ← (gradient + k·(θ − θ*)) / (1 + lr·k)

The division makes the step at the learning rate lr the implicit one, θ ← θ* + (θ − θ* − lr·g)/(1 + lr·k): it rests
where the papers' loss does and cannot overshoot, however large k is. Written out plainly, a step diverges where
lr·k > 2, and Fisher values of one task span ten orders of magnitude, so that such entries are the rule. Where lr·k is
small the step is the plain one; under Adam the division, constant in every entry, cancels out.

The gradient is written out instead of left to autograd: it is cheaper, and the gradient of the task alone stays at
hand for those that need it. Heads are left out: a finished task's head gets no gradient, so that it never leaves its
anchor. The validation loss includes the term, as in HAT's baselines: the best epoch is the best compromise, not the
one that has drifted furthest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hatrack.methods.base import Method
from hatrack.methods.parts.declared import Part, kept


class Pull:
    """½·Σ k·(θ − θ*)² and the implicit step towards it; k by name, or one figure for all entries."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        anchors: Mapping[str, Tensor],
        k: Mapping[str, Tensor] | float,
        lr: float,
    ) -> None:
        self._parameters = [parameters[name] for name in anchors]
        self._anchors = list(anchors.values())
        self._k: Any = [k if isinstance(k, float) else k[name] for name in anchors]
        self._damping: Any = [1 / (1 + lr * each) for each in self._k]
        self._found: list[Tensor] | None = None

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the penalty, without a graph."""
        off, pulls = self._towards()
        self._found = pulls  # the gradients that follow in this step need them too
        return 0.5 * torch.stack([torch.dot(o.flatten(), p.flatten()) for o, p in zip(off, pulls, strict=True)]).sum()

    def _towards(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return θ − θ* and k·(θ − θ*)."""
        off: Any = torch._foreach_sub(self._parameters, self._anchors)
        return off, list(torch._foreach_mul(off, self._k))

    @torch.no_grad()
    def on_gradients(self) -> None:
        """Turn the task's gradients into those of the implicit step."""
        moved = [i for i, p in enumerate(self._parameters) if p.grad is not None]
        if not moved:
            return
        pulls = self._towards()[1] if self._found is None else self._found
        self._found = None
        gradients: Any = [self._parameters[i].grad for i in moved]
        torch._foreach_add_(gradients, [pulls[i] for i in moved])
        torch._foreach_mul_(gradients, [self._damping[i] for i in moved])


@dataclass(init=False, eq=False)
class Anchor(Part):
    """Anchors of all shared parameters where the last task left them, and how much each entry counts."""

    anchors: dict[str, Tensor] = kept("anchor")
    weights: dict[str, Tensor] = kept("weight")
    pull: Pull | None = None

    def start(self, method: Method, strength: float) -> None:
        """Pull the coming task's weights back to the anchors, if there are any."""
        if self.anchors:
            k = {name: strength * w for name, w in self.weights.items()}
            self.pull = Pull(method.shared(), self.anchors, k or strength, method.lr)

    def hold(self, parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        """Anchor the next task at the weights as they are now; no `weights`: all entries count alike."""
        self.anchors = {name: p.detach().clone() for name, p in parameters.items()}
        self.weights = dict(weights)

    def penalty(self) -> Tensor | None:
        return None if self.pull is None else self.pull.value()

    def on_gradients(self) -> None:
        if self.pull is not None:
            self.pull.on_gradients()
