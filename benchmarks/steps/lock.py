"""`hatrack bench lock`: what the lock alone adds to a training step, under plain SGD and under Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from hatrack.data.feed import Feed
from hatrack.learn.core import pick_device
from hatrack.learn.machine.engine import resolve_engine
from hatrack.masks.lock import Lock
from hatrack.methods.sgd import SGD

from .sides import BATCH, Case, Member, alone
from .timing import interleave, machine, repeated

STEPS = 10  # of the lock alone
OPEN = 0.5  # share of the units that count as taken: a quarter of the weights between them is locked


@dataclass
class Locked(SGD):
    """Plain training with half of the units locked, and no gates."""

    def begin_task(self, task: int, feed: Feed, generator: torch.Generator) -> None:
        super().begin_task(task, feed, generator)
        units = self.model.units
        taken = (torch.rand(units.size, generator=generator) < OPEN).float().to(self.model.device)
        self.lock = Lock(self.model.parameters(), units.used(taken))


def _adam(parameters: Sequence[Tensor]) -> Optimizer:
    return Adam(parameters, lr=1e-5, fused=True)


def lock_table(device: str = "auto", engine: str = "auto", rounds: int = 60) -> str:
    """Return the table as text."""
    where = pick_device(device)
    chosen = resolve_engine(engine, where)
    steps = 1 if where.type == "cpu" else 100
    lines = [
        f"AlexNet-like net, batch {BATCH}, {chosen}, {machine(where)}; {rounds} interleaved rounds of {steps} steps"
    ]
    for name, factory in (("plain SGD", None), ("Adam", _adam)):
        free = Case(lambda: SGD(lr=1e-4), 0, chosen, factory=factory)
        locked = Case(lambda: Locked(lr=1e-4), 0, chosen, factory=factory)
        sides = {
            name: (alone(free, where, steps), steps),
            f"{name} with lock": (alone(locked, where, steps), steps),
        }
        timings = interleave(sides, rounds, where, warm=2)
        lines += [f"{t.side:<28}{t.milliseconds:>9.2f} ms a step{t.ratio:>9.3f} × without" for t in timings]
        alone_ms = _own_milliseconds(locked, where, rounds)
        share = alone_ms / timings[0].milliseconds
        lines.append(f"{'its operations by themselves':<28}{alone_ms:>9.2f} ms a step{1 + share:>9.3f} × without")
    return "\n".join(lines)


def _own_milliseconds(case: Case, device: torch.device, rounds: int) -> float:
    """Time what the lock does in a step and nothing else: steadier than the difference of two long steps."""
    member = Member(case, device, 1)
    for _ in member.epoch():
        pass
    lock = member.method.lock
    assert lock is not None

    def step() -> None:
        lock.on_gradients()
        lock.after_step()

    return interleave({"lock": (repeated(step, STEPS), STEPS)}, rounds, device)[0].milliseconds
