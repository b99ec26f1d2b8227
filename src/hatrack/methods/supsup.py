"""SupSup, supermasks in superposition. Wortsman et al. 2020; task identity given (their scenario GG).

    weights  random and never trained: W = ±√(2/fan_in), the sign of every initial weight kept (signed Kaiming constant)
    mask     M = 1 for the share `keep` of a layer's entries with the largest |score|, 0 elsewhere
    forward  W ⊙ M; backward straight through the mask: dL/d|score| = dL/dM
    scores   fresh for each task, U(±1/√fan_in); what a finished task keeps is its mask, at one bit a weight

Trained with Adam at 0.001 as in the paper, whose grid for `keep` ends at 32 %. Every parameter with two axes or more
is masked; biases stay as they are.

Deviations. The head is a plain linear layer of the task's own, trained, as for all methods here (the paper masks a
random one). Batch norms are one a task with scale and shift trained (the paper: one a task, without either). The same
share is kept in every layer (the paper's CIFAR runs spread it by layer size).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.masks.gates import apply
from hatrack.masks.packed import pack, unpack
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.norms import private_norms
from hatrack.nets.model import Model


@dataclass
class SupSup(Method):
    """Find a subnetwork of a fixed random network for every task."""

    name: ClassVar[str] = "supsup"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Wortsman et al. 2020"
    summary: ClassVar[str] = "learned masks over fixed random weights, one bit a weight and task"
    stores: ClassVar[str] = "P/8 bytes: a bit a weight"
    guarantee: ClassVar[bool] = True

    lr: float = hyper(0.001, "learning rate (Adam) at the start of every task", low=0.0, search=(1e-4, 0.1, "log"))
    lr_min: float = hyper(1e-5, "training on a task stops when the learning rate falls below", low=0.0)
    keep: float = hyper(0.32, "share of every layer's weights in a mask", low=0.0, high=1.0, search=(0.01, 0.5, "log"))

    def attach(self, model: Model) -> None:
        super().attach(model)
        own = self.private()
        shared = {name: p for name, p in model.parameters().items() if name not in own}
        self.weights = {name: p for name, p in shared.items() if p.ndim > 1}
        self.others = {name: p for name, p in shared.items() if p.ndim <= 1}
        self.packed: list[Tensor] = []

    def private(self) -> Mapping[str, Tensor]:
        return private_norms(self.model, "task")

    # ---- learning

    @torch.no_grad()
    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        self.refuse_unfrozen()
        super().begin_task(task, feed, generator)
        self.scores = {}
        for name, weight in self.weights.items():
            fan_in = weight[0].numel()
            if task == 0:  # done again when an interrupted first task is taken up: it changes nothing then
                weight.copy_(torch.where(weight >= 0, 1.0, -1.0) * (2 / fan_in) ** 0.5)
            scores = torch.rand(weight.shape, generator=generator) * 2 - 1
            self.scores[name] = nn.Parameter((scores * fan_in**-0.5).to(weight))

    def trainable(self) -> dict[str, Tensor]:
        fixed = {f"net/{name}" for name in (*self.weights, *self.others)}
        learned = {name: t for name, t in super().trainable().items() if name not in fixed}
        return {**{f"scores/{name}": s for name, s in self.scores.items()}, **learned}

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        return torch.optim.Adam(parameters, lr=self.lr, fused=True)

    def loss(self, batch: Batch) -> Tensor:
        weights = {
            name: w.detach() * straight_through(self.scores[name], self.keep) for name, w in self.weights.items()
        }
        return cross_entropy(self.model.logits(batch.x, self.task, weights=weights), batch.y)

    def end_task(self, feed: Feed) -> None:
        masks = self._learning()
        self.packed.append(pack(torch.cat([mask.flatten() for mask in masks.values()])))
        self.model.keep_moved_buffers(self.task)

    def _learning(self) -> dict[str, Tensor]:
        """Return the masks of the task in progress."""
        return {name: top(s.detach().abs(), self.keep) for name, s in self.scores.items()}

    # ---- using what was learned

    def _masks(self, task: int) -> dict[str, Tensor]:
        if task == len(self.packed):
            return self._learning()
        sizes = [w.numel() for w in self.weights.values()]
        parts = unpack(self.packed[task], sum(sizes)).to(self.model.device).split(sizes)
        return {name: part.view_as(w) for (name, w), part in zip(self.weights.items(), parts, strict=True)}

    def predict(self, x: Tensor, task: int) -> Tensor:
        weights = {name: apply(mask, self.weights[name]) for name, mask in self._masks(task).items()}
        return self.model.logits(x, task, weights=weights)

    def use(self, task: int) -> Mapping[str, Tensor]:
        return self._in_order(self._masks(task))

    def occupied(self) -> Mapping[str, Tensor]:
        union = {name: torch.zeros_like(w, dtype=torch.bool) for name, w in self.weights.items()}
        for task in range(max(len(self.packed), self.task + 1)):
            union = {name: mask | union[name] for name, mask in self._masks(task).items()}
        return self._in_order(union)

    def _in_order(self, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        every = {**{name: torch.ones_like(p) for name, p in self.others.items()}, **masks}
        return {name: every[name].float() for name in self.model.parameters() if name in every}

    def state(self) -> dict[str, Tensor]:
        return {f"mask/{t}": packed for t, packed in enumerate(self.packed)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.packed = [state[f"mask/{t}"].cpu() for t in range(len(state))]


def top(scores: Tensor, keep: float) -> Tensor:
    """Mark the share `keep` of the entries, those with the largest scores."""
    below = min(int((1 - keep) * scores.numel()), scores.numel() - 1)  # as the published code rounds
    # Not kthvalue: on a GPU it lets one block of threads do all the work.
    return scores >= scores.flatten().topk(scores.numel() - below, sorted=False).values.min()


def straight_through(scores: Tensor, keep: float) -> Tensor:
    """Return the mask of |scores| as floats; its gradient goes on to |scores| as it is."""
    size = scores.abs()
    return top(size.detach(), keep).to(size.dtype) + (size - size.detach())
