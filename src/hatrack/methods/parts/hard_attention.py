"""What HAT and PMASK share: learned gates a = σ(s·e), annealed within an epoch, on whatever they gate.

s             1/s_max + (s_max − 1/s_max)·(b−1)/(B−1) in training, s_max at evaluation
hard gates    where a task's end makes gates 0 or 1, evaluation does so from the start: else the best epoch could be
              one whose half-open gates will not stay half-open
compensation  q ← q·s_max·[cosh(s·e) + 1] / (s·[cosh(e) + 1]), |s·e| ≤ 50; then |e| ≤ 6 after the step
loss          cross-entropy + c·Σ a·(1 − a^{<t}) / Σ (1 − a^{<t}), a^{<t} what earlier tasks have taken
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hatrack.data.feed import Feed
from hatrack.errors import HatrackError
from hatrack.masks.gates import EMBEDDING_RANGE, anneal, compensate, gate, prices, sparsity
from hatrack.measure.shares import USED
from hatrack.methods.base import Method, ScheduleState
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import scratch
from hatrack.methods.parts.worth import learned_worth, least, most, without_end
from hatrack.modes import evaluating

PRETRAINED = "pretrained"
BATCH = 64
WARM = 200  # steps: a fresh head first makes a handful of validation samples worse, and nothing would be learned
LEAN = 2.0  # standard deviations of fresh embeddings
GENTLER = 50.0  # Adam's steps for a network that knows something, 0.001 by default


@dataclass
class HardAttention(Method):
    """Gates from one embedding vector e a task, at its start e ~ N(0, 1), or U(0, 2): all gates open (compression).

    Or, for weights that are pretrained: all gates are open for the first half of the epochs; then what answers can best
    do without is closed (worth.py) until `room` of what was free is free, and the second half trains the rest. The
    optimiser is Adam at lr/50, unless the learner was given one. What is left free gets its initial value back.
    """

    s_max: float = hyper(400.0, "gate scale at the end of an epoch: stability", low=1.0, search=(25.0, 800.0, "log"))
    c: float = hyper(0.75, "weight of the sparsity term: compressibility", low=0.0, search=(0.1, 2.5, "log"))
    start: str = hyper(
        "normal",
        "embeddings at first: normal, N(0, 1), or open, U(0, 2); pretrained: open, then closed by worth (see room)",
        choices=("normal", "open", PRETRAINED),
    )
    room: float = hyper(
        0.7, "where start is pretrained: share of the weights still free that a task leaves free", low=0.0, high=1.0
    )

    keep_tasks: int = hyper(0, "tasks that are kept: before another begins, the oldest is released; 0 keeps all", low=0)

    embedding: nn.Parameter = scratch()
    taken: Tensor = scratch()  # by earlier tasks
    prices: Tensor = scratch()
    price: Tensor | None = scratch()  # R at the last step
    _scale: Tensor = scratch()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_tasks and not self.promises():
            raise HatrackError(
                f"{self.name}: keep_tasks = {self.keep_tasks} releases old tasks, which takes locks that keep them "
                f"apart; leave it out, or choose hat or pmask with hard gates (and norms that are not shared)."
            )

    def attend(self, size: int, taken: Tensor, generator: torch.Generator) -> None:
        """Start a task: a fresh embedding of `size` entries, beside what is taken already."""
        draw, scale = (torch.randn, 1.0) if self.start == "normal" else (torch.rand, 2.0)
        self.embedding = nn.Parameter(scale * draw(size, generator=generator).to(self.model.device))
        self.take(taken)
        if self.fixed:
            self.adopt()

    @torch.no_grad()
    def lean(self, gates: Tensor) -> None:
        """Start from gates of 0 and 1 that were learned before: as far to a side as a fresh embedding is at most."""
        self.embedding.copy_(torch.where(gates > 0.5, LEAN, -LEAN))

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
        with evaluating(self.model.net):
            return learned_worth(lambda x, a: self.gated(x, self.task, a), self.taken, self.target, batches)

    # ---- weights that are worth keeping

    @property
    def fixed(self) -> bool:
        """Whether gates are not trained: open at first, then closed by their worth."""
        return self.start == PRETRAINED

    @property
    def unjudged(self) -> int:
        return WARM if self.fixed else super().unjudged

    @property
    def phased(self) -> bool:
        kind = type(self)
        more = kind.begin_phase is not Method.begin_phase or kind.end_phase is not HardAttention.end_phase
        return self.fixed or more

    def phases(self, epochs: int) -> Sequence[int]:
        return (epochs - epochs // 2, epochs // 2) if self.fixed else super().phases(epochs)

    def end_phase(self, phase: int, feed: Feed, state: ScheduleState) -> None:
        if not self.fixed or phase:
            return
        worth = self.worth(without_end(feed, BATCH, torch.Generator().manual_seed(self.task)))

        def free(count: int) -> int:
            self.adopt(most(worth, count))
            return sum(int((taken <= USED).sum()) for taken in (self.occupied() or {}).values() if taken.ndim > 1)

        wanted = self.room * free(int((self.taken == 0).sum()))
        free(least(lambda count: free(count) >= wanted, len(worth)))

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        if self.fixed:
            return torch.optim.Adam(parameters, lr=self.lr / GENTLER, fused=True)
        return super().optimizer(parameters)

    def finish(self, feed: Feed) -> None:
        self.price = None  # it belongs to a step that is over
        super().finish(feed)
        if self.fixed:
            self._give_back()

    @torch.no_grad()
    def _give_back(self) -> None:
        """Let what no task has taken start the next one from where it was handed over."""
        taken = self.occupied() or {}
        for name, weight in self.shared().items():
            if name in taken:
                weight.copy_(torch.where(taken[name] > 0, weight, self.model.initial[name]))

    def freed(self, drawn: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {name: self.model.initial[name] for name in drawn} if self.fixed else drawn

    # ---- the step

    def penalty(self) -> Tensor | None:
        if self.fixed:
            return super().penalty()
        assert self.price is not None
        others = super().penalty()
        return self.c * self.price if others is None else self.c * self.price + others

    def trainable(self) -> dict[str, Tensor]:
        return {**super().trainable(), **self.gates()}

    def gates(self) -> dict[str, Tensor]:
        return {"embedding": self.embedding}

    def valid_loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        return super().valid_loss(logits, y, task) + self.c * sparsity(self.final_gates(), self.prices)

    def after_backward(self) -> None:
        super().after_backward()
        if self.fixed:
            return
        assert self.embedding.grad is not None
        compensate(self.embedding.grad, self.embedding.detach(), self._scale, self.s_max)

    def after_step(self) -> None:
        super().after_step()
        self.embedding.data.clamp_(-EMBEDDING_RANGE, EMBEDDING_RANGE)
