"""The outcome of a study that never happened, with run folders such as real runs leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from hatrack.runs.spec import resolve
from hatrack.studies.execute import Outcome
from hatrack.studies.file import parse
from hatrack.studies.findings import Finding
from hatrack.studies.plan import Planned
from report.folder import write_run

TEXT = f"""
# {"a line as long as they may well be in a study file, " * 4}
title = "A study & its <figures>"
source = "A paper"
seeds = [0, 1, 2]
benchmarks = ["split-digits"]
methods = ["hat", "ewc", "sgd"]
measures = ["acc", "rho", "rho@2"]
[paper]
within = 0.02
[paper.acc.split-digits]
hat = [0.97, 0.01]
sgd = 0.5
CAB = [0.93, 0.02]
"""
GRID = """
seeds = [0]
benchmarks = ["split-digits"]
methods = ["hat"]
measures = ["acc"]
[method.hat.grid]
c = [0.5, 1.0]
s_max = [100, 200]
"""
SINGLE = """
seeds = [0]
benchmarks = ["split-digits"]
methods = ["hat", "sgd"]
measures = ["acc", "capacity"]
"""
LOSS = {"hat": 0.02, "ewc": 0.1, "sgd": 0.3}  # of accuracy, about


def outcome(folder: Path, text: str = TEXT, tasks: int = 5, failed: tuple[tuple[str, int], ...] = ()) -> Outcome:
    """Write the runs of a study and return what gathering them would."""
    study = parse(text, "made-up")
    rng = np.random.default_rng(3)
    findings, reasons = [], {}
    for method in study.methods:
        for seed in study.seeds:
            spec = resolve({"method": method.name, "seed": seed, "epochs": 2, "device": "cpu"}, [("widths", [8])])
            path = folder / "runs" / f"{method.label.replace(' ', '-')}-{seed}"
            run = Planned("split-digits", method.label, spec, path, ())
            if (method.label, seed) in failed:
                reasons[path] = "it was <unlucky>."
                findings.append(Finding(run, None, reasons[path]))
                continue
            write_run(path, tasks, method=method.name)
            findings.append(Finding(run, _result(path, LOSS[method.name], rng)))
    return Outcome(study, findings, reasons)


def _result(path: Path, loss: float, rng: np.random.Generator) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((path / "result.json").read_text())
    tasks = len(result["tasks"])
    accuracy = [[1 - loss * (0.8 + 0.4 * rng.random()) for _ in range(t + 1)] for t in range(tasks)]
    each = [-loss * (0.8 + 0.4 * rng.random()) for _ in range(tasks)]
    metrics = {"acc": sum(accuracy[-1]) / tasks, "rho": each[-1], "rho_each": each}
    return {**result, "accuracy": accuracy, "metrics": metrics, "memory": 3 * 2**20}
