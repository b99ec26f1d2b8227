"""`hatrack bench` on CUDA: methods × engines × cohort sizes in one interleaved run, the published way and the floor.

    × published   how many times faster than the authors' way of doing HAT's step (published.py)
    × plain SGD   time over that of plain SGD under the same engine, precision and cohort size
    × floor       time over the least that the step's bytes and operations take on this device (floor.py)

All methods but plain SGD stand in their second task, where locks, penalties and masks are at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hatrack.errors import unknown
from hatrack.methods import METHODS

from .floor import floor_milliseconds
from .published import published_step
from .sides import BATCH, Case, cohort
from .timing import interleave, machine, repeated

COMPARED = ("sgd", "hat", "spg", "ewc", "pmask")
RATE = 1e-4  # too small to leave the neighbourhood of the start: all sides stay at ordinary numbers


@dataclass(frozen=True)
class Row:
    """A line of the table to be measured."""

    method: str
    engine: str
    precision: str
    members: int

    @property
    def plain(self) -> Row:
        """The line that this one is compared with."""
        return Row("sgd", self.engine, self.precision, self.members)

    def case(self) -> Case:
        """Return what is to be timed."""
        kind = METHODS[self.method]
        return Case(lambda: kind(lr=RATE), 0 if self.method == "sgd" else 1, self.engine, self.precision)

    def __str__(self) -> str:
        seeds = "1 seed" if self.members == 1 else f"{self.members} seeds"
        return f"{self.method:<8}{self.engine:<10}{self.precision:<9}{seeds:<8}"


def rows(methods: Sequence[str], engines: Sequence[str] | None) -> list[Row]:
    """Return the lines of the table: cohorts under recorded engines only, bf16 for two methods."""
    for method in methods:
        if method not in METHODS:
            raise unknown("method", method, METHODS)
    kinds = engines or ("eager", "graph", "compiled")
    named = tuple(dict.fromkeys(("sgd", *methods)))
    main = [method for method in named if method in ("sgd", "hat")]
    fast = [engine for engine in kinds if engine != "eager"]
    listed = [Row(m, e, "tf32", 1) for e in kinds for m in named]
    listed += [Row(m, e, "bf16", 1) for e in fast for m in main]
    listed += [Row(m, e, "tf32", 8) for e in fast for m in named]
    listed += [Row(m, e, "bf16", 8) for e in fast for m in main]
    listed += [Row("hat", fast[-1], "tf32", n) for n in (2, 4)] if fast and "hat" in named else []
    return listed


def speed_table(
    where: torch.device,
    methods: Sequence[str] = COMPARED,
    engines: Sequence[str] | None = None,
    rounds: int = 9,
    steps: int = 100,
) -> str:
    """Measure and return the table as text."""
    listed = rows(methods, engines)
    sides: dict[str, tuple[Callable[[], None], int]] = {"published": (repeated(published_step(where), steps), steps)}
    for row in listed:
        sides[str(row)] = (cohort(row.case(), where, steps, row.members), steps * row.members)
    timings = {t.side: t for t in interleave(sides, rounds, where, warm=4)}
    floors = {precision: floor_milliseconds(where, precision) for precision in {row.precision for row in listed}}
    head = f"AlexNet-like net, batch {BATCH}, {machine(where)}; {rounds} interleaved rounds of {steps} steps"
    base = timings["published"].milliseconds
    lines = [
        head,
        f"{'':<35}{'ms a step':>11}{'× published':>13}{'× plain SGD':>13}{'× floor':>9}",
        f"{'published way (HAT)':<35}{base:>11.3f}{1:>13.1f}{'':>13}{base / floors[listed[0].precision]:>9.1f}",
    ]
    for row in listed:
        took = timings[str(row)].milliseconds
        plain = timings[str(row.plain)].milliseconds if str(row.plain) in timings else None
        slower = "" if plain is None else f"{took / plain:.2f}"
        lines.append(f"{row!s:<35}{took:>11.3f}{base / took:>13.1f}{slower:>13}{took / floors[row.precision]:>9.1f}")
    lines.append("floor: " + ", ".join(f"{p} {ms:.4f} ms" for p, ms in sorted(floors.items())))
    return "\n".join(lines)
