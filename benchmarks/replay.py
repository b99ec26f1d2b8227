"""Replay beside masks, with the task told and without: one command, one table.

    python benchmarks/replay.py             (writes docs/results/replay-runs.csv, prints the table of replay.md)

Told: a sample is answered by its own task's head. Not told: by the highest of all logits, those of every head side by
side. Every run adds a line to the CSV, and what has one is not run again; delete it to run all anew.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

import hatrack
from hatrack.data.task import Task
from hatrack.learn.learner import Learner
from hatrack.learn.seeds import noise
from hatrack.measure import average_accuracy, forgetting, free_accuracy
from hatrack.methods import METHODS
from hatrack.nets import build

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "replay-runs.csv"
EPOCHS = {"split-digits": 30, "permuted-digits": 10}
OPTIONS: dict[str, dict[str, Any]] = {"split-digits": {}, "permuted-digits": {"tasks": 5}}
LR = 0.25  # as in docs/results/accuracy.md
SEEDS = (0, 1, 2)
BUFFERS = (50, 200, 500)
DECIDES = ("benchmark", "method", "heads", "buffer", "seed")
FIGURES = ("told", "free", "forgetting", "seconds")


def runs() -> Iterator[dict[str, Any]]:
    """Yield what decides each run."""
    settings = [(method, "", 0) for method in ("sgd", "a-gem", "hat", "joint")]
    settings += [(m, heads, size) for m in ("replay", "der++") for heads in ("own", "all") for size in BUFFERS]
    for benchmark in EPOCHS:
        for seed in SEEDS:
            for setting in settings:
                yield dict(zip(DECIDES, (benchmark, *setting, seed), strict=True))


def outcome(benchmark: str, method: str, heads: str, buffer: int, seed: int) -> dict[str, float]:
    """Train, and return the figures."""
    tasks = [as_seen(task) for task in hatrack.tasks(benchmark, seed=seed, **OPTIONS[benchmark])]
    with noise(seed, "net", device=torch.device("cpu")):
        shape = tuple(tasks[0].train.first(1).shape[1:])
        net = build("mlp", shape, widths=(100, 100), dropout=0.0, input_dropout=0.0)
    options: dict[str, Any] = {"heads": heads, "buffer": buffer} if heads else {}
    learner = Learner(net, METHODS[method](lr=LR, **options), epochs=EPOCHS[benchmark], seed=seed, device="cpu")
    start = time.perf_counter()
    for task in tasks:
        learner.learn(task)
    seconds = time.perf_counter() - start
    matrix: Any = learner.matrix()
    figures = average_accuracy(matrix), without_task(learner, tasks), forgetting(matrix) or 0.0, seconds
    return dict(zip(FIGURES, figures, strict=True))


def as_seen(task: Task) -> Task:
    """Return a task with its samples prepared: a permutation is else known with the task's name, and not seen."""
    prepare, parts = task.inputs.on(torch.device("cpu")), (task.train, task.valid, task.test)
    pairs = [split.on(torch.device("cpu")) for split in parts if split is not None]
    train, *others = ((prepare(x), y) for x, y in pairs)
    return Task(task.name, train, *others, classes=task.classes)


def without_task(learner: Learner, tasks: Sequence[Task]) -> float:
    """Return the accuracy on all test samples by the highest of all logits."""
    parts = [task.test.on(torch.device("cpu")) for task in tasks if task.test is not None]
    logits = [[learner.predict(x, task.name) for task in tasks] for x, _ in parts]
    return free_accuracy(logits, [y for _, y in parts])


def known() -> list[dict[str, str]]:
    """Return the lines that there are."""
    return list(csv.DictReader(OUT.open())) if OUT.exists() else []


def table(lines: Sequence[Mapping[str, str]], benchmark: str) -> Iterator[str]:
    """Yield a row for each setting: mean ± standard deviation over seeds."""
    yield "| method | samples kept | told from | task told | forgetting | task not told |"
    yield "|---|---:|---|---:|---:|---:|"
    groups: dict[tuple[str, str, str], list[Mapping[str, str]]] = {}
    for line in lines:
        if line["benchmark"] == benchmark:
            groups.setdefault((line["method"], line["heads"], line["buffer"]), []).append(line)
    for (method, heads, buffer), group in groups.items():
        columns = ([float(line[name]) for line in group] for name in ("told", "forgetting", "free"))
        told, lost, free = (f"{mean(column):.3f} ± {stdev(column):.3f}" for column in columns)
        seen = "all classes" if heads == "all" else "its own task"
        yield f"| {method} | {buffer if heads else ''} | {seen} | {told} | {lost} | {free} |"


def main() -> None:
    torch.set_num_threads(1)
    done = {tuple(line[name] for name in DECIDES) for line in known()}
    if not done:
        OUT.write_text(",".join((*DECIDES, *FIGURES)) + "\n")
    for run in runs():
        if tuple(str(value) for value in run.values()) in done:
            continue
        figures = outcome(**run)
        with OUT.open("a") as file:
            file.write(",".join([*map(str, run.values()), *(f"{value:.4f}" for value in figures.values())]) + "\n")
        print(*run.values(), *(f"{value:.3f}" for value in figures.values()), file=sys.stderr, flush=True)
    for benchmark in EPOCHS:
        print(f"\n## {benchmark}\n", *table(known(), benchmark), sep="\n")


if __name__ == "__main__":
    main()
