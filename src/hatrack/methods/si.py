"""SI, synaptic intelligence. Zenke, Poole & Ganguli 2017, "Continual learning through synaptic intelligence".

    path       ω ← ω − g·Δθ at every step: g the gradient of the task's loss alone, Δθ what the step really moved
    importance Ω ← max(0, Ω + ω/(Δ² + ξ)) when a task ends, Δ = θ(end) − θ(start); path and end are the best epoch's
    penalty    c·Σ Ω·(θ − θ*)², θ* the weights at the end of the last task

c = 0.1 and ξ = 0.1 are the paper's for permuted MNIST (split MNIST there: c = 1, ξ = 0.001). Steps are those of the
optimiser in use (the paper's is Adam, here plain SGD by default). Ω is kept from falling below 0, as in the authors'
code: a negative weight would push parameters away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.anchor import Anchor
from hatrack.methods.parts.declared import along, part, scratch


@dataclass
class SI(Method):
    """Hold weights by how much they have lowered the loss on their way."""

    name: ClassVar[str] = "si"
    family: ClassVar[str] = "regularisation"
    source: ClassVar[str] = "Zenke et al. 2017"
    summary: ClassVar[str] = "weights are held by their share in the fall of the loss along the path"
    stores: ClassVar[str] = "8·P bytes in all: importances and anchor"
    settles: ClassVar[bool] = True

    c: float = hyper(0.1, "weight of the penalty", low=0.0, search=(0.01, 10.0, "log"))
    xi: float = hyper(0.1, "ξ: damping, bounds the importance of weights that hardly moved", low=1e-9)

    path: dict[str, Tensor] = along("path")  # steps that going back to the best epoch undoes have no share in it
    anchor: Anchor = part(Anchor)
    _moving: list[Tensor] = scratch()
    _before: Any = scratch()
    _gradients: Any = scratch()

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.anchor.start(self, 2 * self.c)
        self._moving = list(self.shared().values())
        self.path = {name: torch.zeros_like(p) for name, p in self.shared().items()}
        self._before = [p.detach().clone() for p in self._moving]
        self._gradients = [torch.zeros_like(p) for p in self._moving]

    @torch.no_grad()
    def after_backward(self) -> None:
        # a parameter without a gradient keeps the last one it had, here zeros or a step it no longer makes: Δθ = 0
        used = [i for i, p in enumerate(self._moving) if p.grad is not None]
        gradients: Any = [self._moving[i].grad for i in used]
        torch._foreach_copy_([self._gradients[i] for i in used], gradients)
        torch._foreach_copy_(self._before, self._moving)
        super().after_backward()

    @torch.no_grad()
    def after_step(self) -> None:
        step: Any = torch._foreach_sub(self._moving, self._before)
        torch._foreach_addcmul_(list(self.path.values()), self._gradients, step, value=-1)

    def end_task(self, feed: Feed) -> None:
        start = self.anchor.anchors or self.model.initial
        importance, old = {}, self.anchor.weights
        for name, p in self.shared().items():
            new = self.path[name] / ((p.detach() - start[name]) ** 2 + self.xi)
            importance[name] = (old[name] + new if old else new).clamp_min(0)
        self.anchor.hold(self.shared(), importance)
