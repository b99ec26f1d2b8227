"""PathNet. Fernando et al. 2017, "PathNet: evolution channels gradient descent in super neural networks".

    modules      every layer has M; a path picks at most N of each layer
    tournament   a generation: two paths are trained one after the other for some epochs each; the loser becomes a
                 copy of the winner and mutates: each of its N·L choices with probability 1/(N·L) moves by −2 … 2,
                 modulo M
    new task     modules outside the winners' paths go back to their initial values, those inside are frozen

Constants as in the baseline of HAT's paper: M = 16, N = 3, 2 paths, 20 generations that share the epochs; fitness is
the validation loss; the winner is the best of all generations so far, and each generation starts from its weights.
A path keeps its learning rate and patience from one generation to the next; the loser takes the winner's rate and
starts counting again.

Deviations. There a module is a small layer and a layer's modules are summed. Here the modules of a layer are M groups
of the units of a site of the unit map, so that any network will do, and a path is a unit mask; what is frozen is
exactly what finished paths use. Modules outside a path are not computed where the network can do without them (see
nets/narrow.py), else they are gated. In a network that sums the groups itself (`branches` of the AlexNet-like net)
these are the paper's modules; in others active groups stand side by side, and a module has weights of its own for each
module below. Sites with fewer than M units have a module a unit. Each of the two paths may train for all the epochs
that are allowed, so a task takes up to twice as many. Norms with running statistics are one a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.errors import HatrackError
from hatrack.masks.lock import Lock
from hatrack.methods.base import Method, ScheduleState
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.declared import kept, progress, scratch
from hatrack.nets.model import Model
from hatrack.nets.narrow import Narrow, narrowed

PATHS = 2
FARTHEST = 2  # modules that a mutation moves by at most


@dataclass
class PathNet(Method):
    """An evolved path of modules for every task."""

    name: ClassVar[str] = "pathnet"
    family: ClassVar[str] = "hard masks"
    source: ClassVar[str] = "Fernando et al. 2017"
    summary: ClassVar[str] = "paths through modules win tournaments; the winner's modules are frozen"
    stores: ClassVar[str] = "3 numbers a site: its path"
    guarantee: ClassVar[bool] = True
    masks_grow: ClassVar[bool] = True
    settles: ClassVar[bool] = True
    norms: ClassVar[str] = "task"

    modules: int = hyper(16, "modules (groups of units) of each layer", low=1, search=(8, 16, 32))
    active: int = hyper(3, "modules of each layer that a path may use", low=1, search=(2, 3, 4, 6))
    generations: int = hyper(20, "tournaments a task; they share the epochs", low=1, search=(5, 10, 20, 50))
    clip: float = hyper(1000.0, "norm at which gradients are clipped", low=0.0)

    winners: list[Tensor] = kept("path")
    paths: Tensor = progress("paths")
    rates: Tensor = progress("rates")
    losses: Tensor = progress("losses")  # a path's lowest on validation
    since: Tensor = progress("since")  # epochs since
    winner: Tensor = progress("winner")
    lowest: Tensor = progress("lowest")
    best: dict[str, Tensor] = progress("best")
    _modules: tuple[Tensor, Tensor, Tensor] | None = scratch()

    def attach(self, model: Model) -> None:
        super().attach(model)
        self._active: Narrow | None = None  # the network of the path being trained
        self._of_winners: dict[int, Narrow | None] = {}  # those of finished tasks, as they are asked

    # ---- paths

    @property
    def _grid(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every unit's site and module, and every site's number of modules."""
        if self._modules is None:
            self._modules = self._divided()
        return self._modules

    def _divided(self) -> tuple[Tensor, Tensor, Tensor]:
        sites = self.model.units.sites
        if not sites:
            raise HatrackError("pathnet found no units to make modules of in this network; choose another method.")
        site = torch.cat([torch.full((s.size,), i) for i, s in enumerate(sites)])
        counts = torch.tensor([min(self.modules, s.size) for s in sites])
        module = torch.cat([torch.arange(s.size) * int(m) // s.size for s, m in zip(sites, counts, strict=True)])
        device = self.model.device
        return site.to(device), module.to(device), counts.to(device)

    def mask(self, path: Tensor) -> Tensor:
        """Return which units a path (sites × choices) switches on."""
        site, module, _ = self._grid
        return (path[site] == module[:, None]).any(1)

    def _drawn(self, generator: torch.Generator) -> Tensor:
        """Return a random path; its choices in a layer differ as far as there are modules enough."""
        orders = [torch.randperm(int(m), generator=generator) for m in self._grid[2]]
        return torch.stack([order[torch.arange(self.active) % len(order)] for order in orders])

    def mutated(self, path: Tensor) -> Tensor:
        """Return a path in which each choice has moved with probability 1/(N·L)."""
        moves = torch.rand(path.shape) < 1 / path.numel()
        steps = torch.randint(-FARTHEST, FARTHEST + 1, path.shape)
        moved = path + torch.where(moves, steps, 0).to(path.device)
        return moved.remainder(self._grid[2][:, None])

    # ---- learning

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        self._of_winners = {finished: net for finished, net in self._of_winners.items() if finished < task}
        device = self.model.device
        self.paths = torch.stack([self._drawn(generator) for _ in range(PATHS)]).to(device)
        self.rates = torch.full((PATHS,), self.lr, dtype=torch.float64, device=device)
        self.losses = torch.full((PATHS,), inf, dtype=torch.float64, device=device)
        self.since = torch.zeros(PATHS, dtype=torch.long, device=device)
        self.winner = torch.zeros((), dtype=torch.long, device=device)
        self.lowest = torch.full((), inf, dtype=torch.float64, device=device)
        taken = self._taken()
        parameters = self.model.parameters()
        with torch.no_grad():
            for name, used in taken.items():
                parameters[name].copy_(torch.where(used > 0, parameters[name], self.model.initial[name]))
        self.lock = Lock(parameters, taken)
        self.best = {name: t.detach().clone() for name, t in self._changing().items()}

    def phases(self, epochs: int) -> Sequence[int]:
        count = max(1, min(self.generations, epochs))
        shares = [(g + 1) * epochs // count - g * epochs // count for g in range(count)]
        return [share for share in shares for _ in range(PATHS)]

    def begin_phase(self, phase: int) -> ScheduleState:
        self.now = now = phase % PATHS
        self._active = narrowed(self.model, self.mask(self.paths[now]), self.task)
        return ScheduleState(float(self.rates[now]), float(self.losses[now]), int(self.since[now]))

    def optimizer(self, parameters: Sequence[Tensor]) -> Optimizer:
        return torch.optim.SGD(parameters, lr=float(self.rates[self.now]), fused=True)

    def loss(self, batch: Batch) -> Tensor:
        return self.task_loss(self._logits(batch.x, self.task, self._active), batch)

    def _logits(self, x: Any, task: int, active: Narrow | None) -> Tensor:
        """Compute the active modules alone, where the network lets us; else all, and gate them."""
        return self.model.logits(x, task, self.unit_gates(task)) if active is None else active.logits(x, task)

    def end_phase(self, phase: int, feed: Feed, state: ScheduleState) -> None:
        self.rates[self.now], self.losses[self.now], self.since[self.now] = state
        if bool(self.losses[self.now] < self.lowest):
            self.lowest.copy_(self.losses[self.now])
            self.winner.fill_(self.now)
            for name, tensor in self._changing().items():
                self.best[name].copy_(tensor.detach())
        if self.now == PATHS - 1:
            self.end_generation()

    def end_generation(self) -> None:
        """Go back to the winner's weights; the loser becomes its mutated copy."""
        self._restore()
        winner = int(self.winner)
        loser = 1 - winner
        self.paths[loser] = self.mutated(self.paths[winner])
        self.rates[loser], self.losses[loser], self.since[loser] = self.rates[winner], inf, 0

    @torch.no_grad()
    def _restore(self) -> None:
        for name, tensor in self._changing().items():
            tensor.copy_(self.best[name])

    def end_task(self, feed: Feed) -> None:
        self.winners.append(self.paths[self.winner].clone())

    def _changing(self) -> dict[str, Tensor]:
        """Return all that training may move: what is trained, and buffers."""
        own = self.model.private[self.task]
        shared = {f"buffer/{n}": b for n, b in self.model.buffers().items() if n not in own}
        return {**self.trainable(), **shared, **{f"kept/{n}": t for n, t in own.items() if not t.requires_grad}}

    def release(self, task: int) -> None:
        super().release(task)
        self._active, self._of_winners = None, {}

    def freed(self, drawn: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """As before every task, modules outside of paths go back to their initial values."""
        return {name: self.model.initial[name] for name in drawn}

    # ---- using what was learned

    def predict(self, x: Tensor, task: int) -> Tensor:
        if task == len(self.winners):
            return self._logits(x, task, self._active)
        if task not in self._of_winners:
            self._of_winners[task] = narrowed(self.model, self.unit_gates(task), task)
        return self._logits(x, task, self._of_winners[task])

    def unit_gates(self, task: int) -> Tensor:
        finished = task < len(self.winners)
        return self.mask(self.winners[task] if finished else self.paths[self.now])

    def use(self, task: int) -> Mapping[str, Tensor]:
        return self._used(self.winners[task])

    def _used(self, path: Tensor) -> dict[str, Tensor]:
        used, shared = self.model.units.used(self.mask(path).float()), self.shared()
        return {name: amount for name, amount in used.items() if name in shared}

    def _taken(self, *more: Tensor) -> dict[str, Tensor]:
        """Return, for every shared entry, whether any finished path (or one of `more`) uses it."""
        taken = {name: torch.zeros_like(p) for name, p in self.shared().items()}
        for path in (*filter(len, self.winners), *more):
            for name, used in self._used(path).items():
                taken[name] = torch.maximum(taken[name], used)
        return taken

    def occupied(self) -> Mapping[str, Tensor]:
        return self._taken(self.paths[self.now]) if self.task == len(self.winners) else self._taken()
