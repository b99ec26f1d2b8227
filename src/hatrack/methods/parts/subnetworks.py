"""What SupSup and WSN share: a subnetwork a task, made of the best scored weights of every layer.

    mask     M = 1 for the share `keep` of a layer's entries with the largest |score|, 0 elsewhere
    forward  W ⊙ M; backward straight through the mask: dL/d|score| = dL/dM
    scores   U(±1/√fan_in) at first, trained with Adam; what a finished task keeps is its mask, at one bit a weight

Every parameter with two axes or more is masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hatrack.data.feed import Feed
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import scratch
from hatrack.methods.parts.weight_masks import PackedMasks
from hatrack.nets.model import Model


@dataclass
class Subnetworks(Method):
    """Masks from scores, over weights that are trained along or are not."""

    family: ClassVar[str] = "hard masks"
    guarantee: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    norms: ClassVar[str] = "task"
    trains_weights: ClassVar[bool] = False

    lr: float = hyper(0.001, "learning rate (Adam) at the start of every task", low=0.0, search=(1e-4, 0.1, "log"))
    lr_min: float = hyper(1e-5, "training on a task stops when the learning rate falls below", low=0.0)
    keep: float = hyper(0.32, "share of every layer's weights in a mask", low=0.0, high=1.0, search=(0.01, 0.5, "log"))

    scores: dict[str, Tensor] = scratch()

    def attach(self, model: Model) -> None:
        super().attach(model)
        self.masks = PackedMasks(self.model, self.shared())

    def drawn(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Return scores to begin with."""
        bounds = {name: weight[0].numel() ** -0.5 for name, weight in self.masks.masked.items()}
        return {
            name: ((torch.rand(weight.shape, generator=generator) * 2 - 1) * bounds[name]).to(weight)
            for name, weight in self.masks.masked.items()
        }

    def score(self, start: Mapping[str, Tensor]) -> None:
        """Begin a task with these scores."""
        self.scores = {name: nn.Parameter(scores.detach().clone()) for name, scores in start.items()}

    def learned_besides(self, tasks: int) -> int:
        fixed = 0 if self.trains_weights else sum(p.numel() for p in self.shared().values())
        return self.masks.entries(tasks) - fixed

    def trainable(self) -> dict[str, Tensor]:
        return {**self.gates(), **super().trainable()}

    def gates(self) -> dict[str, Tensor]:
        return {f"scores/{name}": s for name, s in self.scores.items()}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, fused=True)

    def forward(self, x: Any) -> Tensor:
        behind = {n: w if self.trains_weights else w.detach() for n, w in self.masks.masked.items()}
        weights = {name: behind[name] * straight_through(s, self.keep) for name, s in self.scores.items()}
        return self.model.logits(x, self.task, weights=weights)

    def end_task(self, feed: Feed) -> None:
        self.masks.keep(torch.cat([mask.flatten() for mask in self._learning().values()]))

    def _learning(self) -> dict[str, Tensor]:
        """Return the masks that the task would keep if it ended now."""
        return {name: top(s.detach().abs(), self.keep) for name, s in self.scores.items()}

    def _masks(self, task: int) -> dict[str, Tensor]:
        return self.masks.of(task) if task < len(self.masks.packed) else self._learning()

    def seen(self, task: int) -> dict[str, Tensor]:
        return {**super().seen(task), **self.masks.weights(self.masks.of(task), task)}

    def predict(self, x: Tensor, task: int) -> Tensor:
        if task in self.model.copies:
            return self.model.logits(x, task)
        return self.model.logits(x, task, weights=self.masks.weights(self._masks(task), task))

    def use(self, task: int) -> Mapping[str, Tensor]:
        return {} if task in self.model.copies else self.masks.complete(self._masks(task), task)

    def use_in_state(self, task: int) -> Mapping[str, tuple[str, str, int]]:
        return self.masks.bits(task)

    def occupied(self) -> Mapping[str, Tensor]:
        taken = self.masks.by_name(self.masks.union(self.model.copies))
        if self.task == len(self.masks.packed):
            taken = {name: mask | taken[name] for name, mask in self._learning().items()}
        return self.masks.in_all(taken, max(self.task + 1, len(self.masks.packed)))


def top(scores: Tensor, keep: float) -> Tensor:
    """Mark the share `keep` of the entries, those with the largest scores."""
    below = min(int((1 - keep) * scores.numel()), scores.numel() - 1)  # as the published code rounds
    # Not kthvalue: on a GPU it lets one block of threads do all the work.
    return scores >= scores.flatten().topk(scores.numel() - below, sorted=False).values.min()


def straight_through(scores: Tensor, keep: float) -> Tensor:
    """Return the mask of |scores| as floats; its gradient goes on to |scores| as it is."""
    size = scores.abs()
    return top(size.detach(), keep).to(size.dtype) + (size - size.detach())
