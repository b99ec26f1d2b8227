"""`hatrack bench` on a CPU: every method beside a plain torch loop and the floor, network by network.

    × plain torch   time over that of the plain torch loop (plain.py) with the same network, median over the rounds
    × floor         time over the least that the step's bytes and operations take on this machine (floor.py)

All methods but plain SGD stand in their second task, where locks, penalties and masks are at work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from hatrack.learn.machine.engine import resolve_engine
from hatrack.nets import build
from hatrack.nets.precision import multiplies_bf16

from .floor import Floor, bytes_a_second, operations_a_second, work_of
from .plain import PlainLoop
from .published import published_step
from .sides import BATCH, SHAPE, alone, noise_task
from .speed import COMPARED, RATE, Row
from .timing import interleave, machine, repeated

MNIST = (1, 28, 28)


@dataclass(frozen=True)
class Net:
    """A network of the table, and the methods that train it, by precision."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], nn.Module]
    methods: Mapping[str, Sequence[str]]
    published: bool = False  # whether it is the one that the published way trains


NETS = (
    Net(
        "AlexNet-like net",
        SHAPE,
        lambda: build("alexnet", SHAPE),
        {"float32": COMPARED, "bf16": ("sgd", "hat")},
        published=True,
    ),
    Net("MLP 784-2000-2000", MNIST, lambda: build("mlp", MNIST), {"float32": ("hat",), "bf16": ("hat",)}),
)


@dataclass(frozen=True)
class Line:
    """A line of the table to be measured."""

    what: str
    precision: str
    call: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.what:<21}{self.precision:<11}"


def cpu_table(device: torch.device, nets: Sequence[Net] = NETS, rounds: int = 15, steps: int = 5) -> str:
    """Measure and return the table as text."""
    precisions = ["float32", *(["bf16"] if multiplies_bf16() else [])]
    memory = bytes_a_second(device)
    products = {precision: operations_a_second(device, precision) for precision in precisions}
    lines = [
        f"{machine(device)}; batch {BATCH}",
        f"{rounds} interleaved rounds of {steps} steps; all methods but sgd in their second task",
    ]
    if "bf16" not in precisions:
        lines.append("bf16 is left out: this CPU has neither avx512_bf16 nor AMX")
    foot = ["", f"{'floor':<21}{'precision':<11}{'GFLOP':>8}{'GFLOP/s':>10}{'GB':>8}{'GB/s':>8}{'ms':>9}"]
    for net in nets:
        work = work_of(net.make(), net.shape, device)
        floors = {precision: Floor(work, speed, memory) for precision, speed in products.items()}
        lines += ["", *_block(net, device, floors, rounds, steps)]
        foot += [
            f"{net.name:<21}{precision:<11}{work.operations / 1e9:>8.2f}{floor.products / 1e9:>10.1f}"
            f"{work.bytes / 1e9:>8.3f}{memory / 1e9:>8.1f}{floor.milliseconds:>9.2f}"
            for precision, floor in floors.items()
        ]
    return "\n".join(lines + foot)


def _block(net: Net, device: torch.device, floors: Mapping[str, Floor], rounds: int, steps: int) -> list[str]:
    listed = _lines(net, device, list(floors), steps)
    timings = interleave({str(line): (line.call, steps) for line in listed}, rounds, device, warm=2)
    rows = [f"{net.name:<32}{'ms a step':>11}{'× plain torch':>15}{'× floor':>9}"]
    for line, t in zip(listed, timings, strict=True):
        rows.append(
            f"{line}{t.milliseconds:>11.2f}{t.ratio:>15.2f}{t.milliseconds / floors[line.precision].milliseconds:>9.1f}"
        )
    return rows


def _lines(net: Net, device: torch.device, precisions: Sequence[str], steps: int) -> list[Line]:
    """Return the plain torch loop, which the others are compared with, and what stands beside it."""
    task, engine = noise_task(steps, net.shape), resolve_engine("auto", device)
    listed = [Line("plain torch loop", "float32", PlainLoop(net.make(), task, device, RATE))]
    if net.published:
        listed.append(Line("published way (HAT)", "float32", repeated(published_step(device), steps)))
    for precision in precisions:
        for method in net.methods[precision]:
            case = replace(Row(method, engine, precision, 1).case(), net=net.make, shape=net.shape)
            listed.append(Line(method, precision, alone(case, device, steps)))
    return listed
