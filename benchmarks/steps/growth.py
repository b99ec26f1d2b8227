"""`hatrack bench growth`: how HAT's step grows with the number of tasks, with width and with parameters.

Tasks are finished untrained: random gates, after which later tasks find all units taken. A step costs the same then.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from hatrack.learn.core import pick_device
from hatrack.learn.machine.engine import resolve_engine
from hatrack.methods.hat import HAT
from hatrack.nets import build

from .sides import SHAPE, Case, Member, epochs
from .timing import interleave, machine

TASKS = (2, 10, 100)
WIDTHS = (512, 1024, 2048, 4096)  # of the AlexNet-like net's two wide layers
SIZES = (1600, 4600, 10_000, 16_000)  # widths of a two-layer MLP: 7, 35, 131 and 305 million parameters
RATE = 1e-4


def growth_table(device: str = "auto", engine: str = "auto", rounds: int = 5) -> str:
    """Measure and return the tables as text."""
    where = pick_device(device)
    chosen = resolve_engine(engine, where)
    steps = 2 if where.type == "cpu" else 50
    blocks = [f"HAT, batch 64, {chosen}, {machine(where)}; {rounds} interleaved rounds of {steps} steps"]
    members = {f"task {n}": Member(_case(chosen, n - 1), where, steps) for n in TASKS}
    kept = {name: _kept(member) for name, member in members.items()}
    blocks.append(_block("number of tasks (AlexNet-like net)", members, where, steps, rounds, kept))
    nets = {f"width {w}": partial(build, "alexnet", SHAPE, width=w) for w in WIDTHS}
    members = {name: Member(_case(chosen, 1, net), where, steps) for name, net in nets.items()}
    blocks.append(_block("width (AlexNet-like net)", members, where, steps, rounds, _sizes(members)))
    for w in SIZES:  # one after the other: together they would not fit
        case = _case(chosen, 1, partial(build, "mlp", SHAPE, widths=(w, w)))
        member = {f"MLP of 2 × {w}": Member(case, where, steps)}
        title = "parameters (MLP of two layers)" if w == SIZES[0] else ""
        blocks.append(_block(title, member, where, steps, rounds, _sizes(member)))
    return "\n".join(blocks)


def _case(engine: str, finished: int, net: partial[nn.Module] | None = None) -> Case:
    case = Case(lambda: HAT(lr=RATE), finished, engine)
    return case if net is None else Case(lambda: HAT(lr=RATE), finished, engine, net=net)


def _kept(member: Member) -> str:
    """Say what a finished task leaves behind: gates, head, and tensors of its own."""
    tasks = max(1, len(member.model.heads) - 1)
    masks = sum(t.numel() * t.element_size() for t in member.method.state().values()) / tasks
    head = member.model.heads[0]
    own = sum(t.numel() * t.element_size() for t in (head.weight, head.bias, *member.model.private[0].values()))
    return f"{(masks + own) / 1024:,.0f} KiB a task"


def _sizes(members: dict[str, Member]) -> dict[str, str]:
    counts = {name: sum(p.numel() for p in m.model.net.parameters()) for name, m in members.items()}
    return {name: f"{count / 1e6:.1f} M parameters" for name, count in counts.items()}


def _block(
    title: str, members: dict[str, Member], device: torch.device, steps: int, rounds: int, notes: dict[str, str]
) -> str:
    sides = {name: (epochs([member], device), steps) for name, member in members.items()}
    timings = interleave(sides, rounds, device, warm=2)
    lines = [f"\n{title}"] if title else []
    return "\n".join(
        [
            *lines,
            *(f"{t.side:<20}{t.milliseconds:>10.3f} ms a step{t.ratio:>8.3f} ×   {notes[t.side]}" for t in timings),
        ]
    )
