"""`hatrack bench run`: where the time of a whole run goes, from the first step to the written report.

The run is the HAT paper's mnist2 (2 tasks, its schedule). The parts are timed from outside, so that a run carries no
stopwatch: the functions named in PARTS are wrapped while it lasts. Steps count until the device has done them.
Modules that torch loads when the first optimiser or graph is made (any training in torch loads them) have a line of
their own, since they come before a process's first run only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch

from hatrack.learn import fit, loop
from hatrack.learn.machine.engine import Engine
from hatrack.runs import folder, runner
from hatrack.runs.setup import prepare
from hatrack.runs.spec import Spec
from hatrack.runs.writer import Writer
from hatrack.studies.plan import Places, plan
from hatrack.studies.recipes import find

from .timing import machine, wait

RECIPE, METHOD = "hat-mnist2", "hat"
LOADED = ("torch._dynamo", "torch.export._trace")
LOADING, TRAINING = "loading torch's parts", "training steps"
PARTS: dict[str, tuple[Any, str]] = {
    TRAINING: (Engine, "advance"),
    "validation": (fit, "validate"),
    "evaluation": (loop, "test_all"),
    "checkpoints": (Writer, "save"),
    "beginning a task": (loop, "begin_task"),
    "the report": (runner, "write_report"),
}


def paper_spec(device: str, data: str | None, seed: int = 0) -> Spec:
    """Return the run that is timed."""
    study = find(RECIPE).narrowed([METHOD], [seed])
    return plan(study, Places(Path(), Path()), device, data).runs[0].spec


def run_table(spec: Spec) -> str:
    """Carry a run out in a temporary folder and return the table as text."""
    start = perf_counter()
    setup = prepare(spec)
    began = perf_counter()
    for name in LOADED:
        import_module(name)
    loading = perf_counter() - began
    spent = dict.fromkeys(PARTS, 0.0)
    with TemporaryDirectory() as place, ExitStack() as stack:
        for part, (owner, name) in PARTS.items():
            stack.enter_context(_clocked(owner, name, spent, part, setup.learner.device))
        with folder.create(spec.toml(), Path(place) / "run", "") as made:
            result = runner.execute(setup, made)
    total = perf_counter() - began
    words = f"{spec.method} on {spec.benchmark}, {len(result['tasks'])} tasks, at most {spec.epochs} epochs each"
    lines = [f"{words}; {machine(setup.learner.device)}; average accuracy {result['metrics']['acc']:.4f}"]
    parts = spent | {LOADING: loading, "everything else": total - loading - sum(spent.values())}
    lines += [f"{part:<24}{seconds:>9.2f} s{seconds / total:>8.1%}" for part, seconds in parts.items()]
    lines.append(f"{'the whole run':<24}{total:>9.2f} s   (and {began - start:.1f} s to read the data before it)")
    lines.append(f"without {LOADING}: {spent[TRAINING] / (total - loading):.1%} in {TRAINING}")
    return "\n".join(lines)


@contextmanager
def _clocked(owner: Any, name: str, spent: dict[str, float], part: str, device: torch.device) -> Iterator[None]:
    """Add the time of every call of a function to its part."""
    real = getattr(owner, name)

    @wraps(real)
    def timed(*args: Any, **more: Any) -> Any:
        start = perf_counter()
        try:
            return real(*args, **more)
        finally:
            if part == TRAINING:
                wait(device)
            spent[part] += perf_counter() - start

    setattr(owner, name, timed)
    try:
        yield
    finally:
        setattr(owner, name, real)
