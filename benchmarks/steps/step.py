"""`hatrack bench step`: what a training step costs under plain SGD and under HAT, on the AlexNet-like net."""

from __future__ import annotations

from hatrack.learn.core import pick_device
from hatrack.learn.machine.engine import resolve_engine
from hatrack.methods.hat import HAT
from hatrack.methods.sgd import SGD

from .sides import BATCH, Case, alone
from .timing import interleave, machine


def step_table(device: str = "auto", engine: str = "auto", rounds: int = 60) -> str:
    """Return the table as text."""
    where = pick_device(device)
    chosen = resolve_engine(engine, where)
    steps = 1 if where.type == "cpu" else 100
    cases = {
        "plain SGD": Case(lambda: SGD(lr=1e-4), 0, chosen),
        "HAT, first task": Case(lambda: HAT(lr=1e-4), 0, chosen),
        "HAT, second task (locked)": Case(lambda: HAT(lr=1e-4), 1, chosen),
    }
    sides = {name: (alone(case, where, steps), steps) for name, case in cases.items()}
    timings = interleave(sides, rounds, where, warm=2)
    head = f"AlexNet-like net, batch {BATCH}, {chosen}, {machine(where)}; {rounds} interleaved rounds of {steps} steps"
    rows = [f"{t.side:<28}{t.milliseconds:>9.2f} ms a step{t.ratio:>9.3f} × plain SGD" for t in timings]
    return "\n".join([head, *rows])
