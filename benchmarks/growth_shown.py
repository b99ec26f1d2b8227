"""Growing beside not growing: permuted digits in many tasks on a small perceptron, score and bytes over tasks.

    python benchmarks/growth_shown.py --seeds 0-1 --out growth.jsonl     # a line a method and seed
    python benchmarks/growth_shown.py --table growth.jsonl               # the table of docs/results/growth.md

small   HAT on two layers of `--width` units
grown   the same, with grow=0.25: sites that are short of free weights are widened before a task
wide    HAT, from the start as wide as `grown` was in the end
one     a network a task, as wide as fits into the bytes that `grown` has in the end
pnn     progressive networks, columns as wide as fit into these

Bytes: four for each parameter that answers are computed with (heads included), and the masks.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Any

import torch

import hatrack
from hatrack import nets
from hatrack.methods import METHODS

AT = (5, 10, 20, 30, 40)


def mlp(widths: tuple[int, int], seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return nets.build("mlp", (1, 8, 8), widths=widths, dropout=0.0, input_dropout=0.0)


def stored(learner: hatrack.Learner) -> int:
    """Return the bytes that answers need: parameters, and masks."""
    masks = sum(t.nbytes for n, t in learner.method.state().items() if n.startswith("mask/"))
    return 4 * learner.parameters_count + masks


def run(name: str, method: Any, widths: tuple[int, int], seed: int, tasks: int, epochs: int) -> dict[str, Any]:
    learner = hatrack.Learner(mlp(widths, seed), method, epochs=epochs, seed=seed, device="cpu")
    began, rows = monotonic(), []
    for task in hatrack.tasks("permuted-digits", seed=seed, tasks=tasks):
        learner.learn(task, progress=False)
        scores = [score for score in learner.matrix()[-1] if score is not None]
        rows.append({"score": mean(scores), "last": scores[-1], "bytes": stored(learner)})
    assert learner.verify().ok
    sites = {s.name: s.size for s in learner.model.units.sites} if name in ("small", "grown", "wide") else {}
    return {
        "name": name, "seed": seed, "widths": widths, "epochs": epochs, "rows": rows, "sites": sites,
        "growths": len(learner.growths), "seconds": round(monotonic() - began),
    }  # fmt: skip


def at_equal_bytes(most: int, tasks: int) -> tuple[int, int]:
    """Return the widths of ONE's networks and PNN's columns that come nearest below so many bytes."""

    def one(w: int) -> int:
        return 4 * tasks * (64 * w + w + w * w + w + 10 * w + 10)

    def pnn(w: int) -> int:
        earlier = tasks * (tasks - 1) // 2
        column = 64 * w + w + w * w + w + 10 * w + 10
        return 4 * (tasks * column + 2 * earlier * (w * w + 1) + (tasks - 1) * (w * w + 10 * w))

    found = (max(w for w in range(1, 200) if size(w) <= most) for size in (one, pnn))
    return next(found), next(found)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seeds", default="0-1")
    asked.add_argument("--tasks", type=int, default=40)
    asked.add_argument("--epochs", type=int, default=20)
    asked.add_argument("--width", type=int, default=50)
    asked.add_argument("--out", type=Path)
    asked.add_argument("--table", type=Path)
    given = asked.parse_args()
    warnings.simplefilter("ignore", hatrack.CapacityWarning)
    if given.table is not None:
        print(table([json.loads(line) for line in given.table.read_text().splitlines()]))
        return
    first, last = (int(part) for part in (given.seeds.split("-") * 2)[:2])
    torch.set_num_threads(1)
    for seed in range(first, last + 1):
        size = given.tasks, given.epochs
        small = given.width, given.width
        grown = run("grown", hatrack.HAT(grow=0.25), small, seed, *size)
        tell(given.out, grown)
        tell(given.out, run("small", hatrack.HAT(), small, seed, *size))
        one, pnn = at_equal_bytes(grown["rows"][-1]["bytes"], given.tasks)
        tell(given.out, run("one", METHODS["one"](), (one, one), seed, *size))
        tell(given.out, run("pnn", METHODS["pnn"](), (pnn, pnn), seed, *size))
        tell(given.out, run("wide", hatrack.HAT(), tuple(grown["sites"].values()), seed, *size))


def tell(out: Path | None, found: dict[str, Any]) -> None:
    print(found["name"], found["seed"], found["widths"], found["rows"][-1], f"{found['seconds']} s", flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(found) + "\n")


def table(found: list[dict[str, Any]]) -> str:
    """Return score and bytes after some tasks, the mean over seeds."""
    names = [name for name in ("small", "grown", "wide", "one", "pnn") if any(run["name"] == name for run in found)]
    at = [t for t in AT if all(len(run["rows"]) >= t for run in found)]
    lines = [
        "| | widths | " + " | ".join(f"after {t}" for t in at) + " | bytes in the end |",
        "|---" * (len(at) + 3) + "|",
    ]
    for name in names:
        runs = [run for run in found if run["name"] == name]
        widths = "; ".join(f"{run['widths'][0]}, {run['widths'][1]}" for run in runs)
        scores = [f"{mean(run['rows'][t - 1]['score'] for run in runs):.3f}" for t in at]
        size = mean(run["rows"][-1]["bytes"] for run in runs)
        lines.append(f"| {name} | {widths} | {' | '.join(scores)} | {size:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
