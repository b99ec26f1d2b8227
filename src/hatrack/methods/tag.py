"""TAG-RMSProp, task-based accumulated gradients. Malviya, Ravindran & Chandar 2022.

For each parameter tensor and task t, with g the gradient of a step:

    M_t ← β1·M_t + (1 − β1)·g        the direction the task moves in
    V_t ← β2·V_t + (1 − β2)·g²       its accumulated gradient
    α_τ = exp(−b·cos(M_t, M_τ)) for τ < t;  α_t = exp(−b), or 1 for the first task
    θ  ← θ − lr·g / (√(Σ_{τ≤t} α_τ·V_τ) + ε)

A task that moves along an old one's direction keeps a large step, one that moves against it a small one. M and V of
every finished task are kept: two copies of the network a task. Constants as in the published scripts: lr 2.5e-4, b 5,
β1 0.9, β2 0.99. The published runs see each sample once, in batches of 10: where a task is trained until its gradients
fade, its V fades too, the factor exp(b/2) on the step remains, and a lower lr is needed (the scripts' range over data
sets is 5e-5 to 2.5e-4). The rule is applied to the gradients, under plain SGD, so that the schedule works as
everywhere; a head belongs to one task and has no old accumulators. Nothing is clipped (clip = 1e9): g divided by the
root of its own mean square has entries near 1, and a norm that says how many they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept, progress, scratch

EPSILON = 1e-8


@dataclass
class TAG(Method):
    """RMSProp whose steps shrink where the new task moves against old ones."""

    name: ClassVar[str] = "tag"
    family: ClassVar[str] = "distillation, replay, optimisation"
    source: ClassVar[str] = "Malviya et al. 2022"
    summary: ClassVar[str] = "RMSProp with one accumulator a task, weighted by how tasks agree"
    stores: ClassVar[str] = "8·P bytes: two moments"

    lr: float = hyper(2.5e-4, "learning rate at the start of every task", low=0.0, search=(1e-5, 1e-2, "log"))
    lr_min: float = hyper(1e-6, "training on a task stops when the learning rate falls below", low=0.0)
    clip: float = hyper(1e9, "norm at which gradients are clipped, after the division", low=0.0)
    b: float = hyper(5.0, "how much agreement between tasks counts", low=0.0, search=(1, 3, 5, 7))
    beta1: float = hyper(0.9, "decay of the directions", low=0.0, high=1.0)
    beta2: float = hyper(0.99, "decay of the accumulated squared gradients", low=0.0, high=1.0)

    directions: list[dict[str, Tensor]] = kept("direction")  # M of finished tasks, of length 1
    squares: list[dict[str, Tensor]] = kept("square")  # V of finished tasks
    m: dict[str, Tensor] = progress("m")
    v: dict[str, Tensor] = progress("v")
    old: dict[str, tuple[Tensor, Tensor]] = scratch()

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self.moved = self.trainable()
        self.m = {name: torch.zeros_like(p) for name, p in self.moved.items()}
        self.v = {name: torch.zeros_like(p) for name, p in self.moved.items()}
        known = [name for name in self.moved if self.directions and name in self.directions[0]]
        self.old = {
            name: (
                torch.stack([d[name].flatten() for d in self.directions]),
                torch.stack([s[name].flatten() for s in self.squares]),
            )
            for name in known
        }

    @torch.no_grad()
    def after_backward(self) -> None:
        super().after_backward()
        moved = [(name, p.grad) for name, p in self.moved.items() if p.grad is not None]
        names, g = [name for name, _ in moved], [gradient for _, gradient in moved]
        m, v = [self.m[name] for name in names], [self.v[name] for name in names]
        torch._foreach_mul_(m, self.beta1)
        torch._foreach_add_(m, g, alpha=1 - self.beta1)
        torch._foreach_mul_(v, self.beta2)
        torch._foreach_addcmul_(v, g, g, value=1 - self.beta2)
        weighted = [self._weighted(name) for name in names]
        torch._foreach_sqrt_(weighted)
        torch._foreach_add_(weighted, EPSILON)
        torch._foreach_div_(g, weighted)

    def _weighted(self, name: str) -> Tensor:
        """Σ α_τ·V_τ over the current task and all before."""
        own = self.v[name] * (exp(-self.b) if self.task else 1.0)
        if name not in self.old:
            return own
        directions, squares = self.old[name]
        alpha = torch.exp(-self.b * (directions @ unit(self.m[name]).flatten()))
        return own + (alpha @ squares).view_as(own)

    def end_task(self, feed: Feed) -> None:
        shared = [name for name in self.m if name.startswith("net/")]
        self.directions.append({name: unit(self.m[name]) for name in shared})
        self.squares.append({name: self.v[name].clone() for name in shared})


def unit(x: Tensor) -> Tensor:
    """Return x at length 1; zeros stay zeros."""
    length = torch.linalg.vector_norm(x)
    return x / torch.where(length > 0, length, 1.0)
