"""What HAT and PMASK share: learned gates a = σ(s·e), annealed within an epoch, on whatever they gate.

s             1/s_max + (s_max − 1/s_max)·(b−1)/(B−1) in training, s_max at evaluation
hard gates    where a task's end makes gates 0 or 1, evaluation does so from the start: else the best epoch could be
              one whose half-open gates will not stay half-open
compensation  q ← q·s_max·[cosh(s·e) + 1] / (s·[cosh(e) + 1]), |s·e| ≤ 50; then |e| ≤ 6 after the step
loss          cross-entropy + c·Σ a·(1 − a^{<t}) / Σ (1 − a^{<t}), a^{<t} what earlier tasks have taken
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hatrack.data.feed import Feed
from hatrack.masks.gates import EMBEDDING_RANGE, anneal, compensate, gate, prices, sparsity
from hatrack.methods.base import Method
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import scratch
from hatrack.methods.parts.worth import learned_worth


@dataclass
class HardAttention(Method):
    """Gates from one embedding vector e a task, at its start e ~ N(0, 1), or U(0, 2): all gates open (compression)."""

    s_max: float = hyper(400.0, "gate scale at the end of an epoch: stability", low=1.0, search=(25.0, 800.0, "log"))
    c: float = hyper(0.75, "weight of the sparsity term: compressibility", low=0.0, search=(0.1, 2.5, "log"))
    start: str = hyper("normal", "embeddings at first: normal, N(0, 1), or open, U(0, 2)", choices=("normal", "open"))

    embedding: nn.Parameter = scratch()
    taken: Tensor = scratch()  # by earlier tasks
    prices: Tensor = scratch()
    price: Tensor | None = scratch()  # R at the last step
    _scale: Tensor = scratch()

    def attend(self, size: int, taken: Tensor, generator: torch.Generator) -> None:
        """Start a task: a fresh embedding of `size` entries, beside what is taken already."""
        draw, scale = (torch.randn, 1.0) if self.start == "normal" else (torch.rand, 2.0)
        self.embedding = nn.Parameter(scale * draw(size, generator=generator).to(self.model.device))
        self.take(taken)

    def take(self, taken: Tensor) -> None:
        """Count what earlier tasks have taken: it costs nothing."""
        self.taken, self.prices = taken, prices(taken)

    def scale(self) -> Tensor:
        """Return s at this step of the epoch."""
        self._scale = anneal(self.clock.fraction(), self.s_max)
        return self._scale

    def final_gates(self) -> Tensor:
        """Return the gates that the task would keep if it ended now."""
        gates = gate(self.embedding.detach(), self.s_max)
        return (gates > 0.5).to(gates.dtype) if self.hardens else gates

    @property
    def hardens(self) -> bool:
        """Whether gates are made 0 or 1 when a task ends."""
        return True

    def gated(self, x: Any, task: int, gates: Tensor) -> Tensor:
        """Return the logits of a task under these gates."""
        raise NotImplementedError

    def adopt(self, gates: Tensor | None = None) -> None:
        opened = torch.ones_like(self.embedding, dtype=torch.bool) if gates is None else gates
        self.embedding.data.copy_(torch.where(opened, EMBEDDING_RANGE, -EMBEDDING_RANGE))

    def worth(self, batches: Iterator[Any]) -> Tensor:
        return learned_worth(
            lambda x, gates: self.gated(x, self.task, gates),
            len(self.embedding),
            self.target,
            batches,
            self.model.device,
        )

    def penalty(self) -> Tensor:
        assert self.price is not None
        others = super().penalty()
        return self.c * self.price if others is None else self.c * self.price + others

    def finish(self, feed: Feed) -> None:
        self.price = None  # it belongs to a step that is over
        super().finish(feed)

    def trainable(self) -> dict[str, Tensor]:
        return {**super().trainable(), **self.gates()}

    def gates(self) -> dict[str, Tensor]:
        return {"embedding": self.embedding}

    def valid_loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        return super().valid_loss(logits, y, task) + self.c * sparsity(self.final_gates(), self.prices)

    def after_backward(self) -> None:
        super().after_backward()
        assert self.embedding.grad is not None
        compensate(self.embedding.grad, self.embedding.detach(), self._scale, self.s_max)

    def after_step(self) -> None:
        super().after_step()
        self.embedding.data.clamp_(-EMBEDDING_RANGE, EMBEDDING_RANGE)
