"""All methods on the same tasks: one command, one table, and whether the order of results is the papers'.

    python benchmarks/accuracy.py --data DIR [--epochs 10] [--seeds 0 1 2] [--workers 2] [--out FOLDER]

Every run's outcome is a small JSON file in --out; what is there is not run again, so a killed benchmark goes on where
it was. The table is written to --table (Markdown).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

BENCHMARKS = ("split-mnist", "permuted-digits")
WIDTHS = (400, 400)
ABOVE = ("hat", "pmask", "spg", "packnet", "supsup", "pnn", "ewc", "si")  # must beat sgd clearly
EXACT = ("hat", "pmask")  # must not forget at all
MARGIN = 0.02
# Benchmarks this small need no more than the papers' constants; what is set here is said in the table.
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {}


def run(benchmark: str, method: str, seed: int, epochs: int, data: str | None, device: str) -> dict[str, Any]:
    """Train one method on one benchmark and return its accuracy matrix and time."""
    import torch

    import hatrack
    from hatrack.learn.learner import Learner
    from hatrack.learn.seeds import noise
    from hatrack.measure import average_accuracy, forgetting
    from hatrack.methods import METHODS
    from hatrack.nets import build

    torch.set_num_threads(1)
    tasks = hatrack.tasks(benchmark, seed=seed, data=data)
    shape = tuple(tasks[0].train.first(1).shape[1:])
    with noise(seed, "net", device=torch.device("cpu")):
        net = build("mlp", shape, widths=WIDTHS)
    settings = SETTINGS.get((benchmark, method), {})
    learner = Learner(net, METHODS[method](**settings), epochs=epochs, seed=seed, device=device)
    start, matrix = time.perf_counter(), []
    for t, task in enumerate(tasks):
        learner.learn(task)
        matrix.append([learner.evaluate(earlier, i) for i, earlier in enumerate(tasks[: t + 1])])
    return {
        "benchmark": benchmark,
        "method": method,
        "seed": seed,
        "epochs": epochs,
        "settings": settings,
        "accuracy": matrix,
        "acc": average_accuracy(matrix),
        "forgetting": forgetting(matrix),
        "unchanged": learner.verify().ok,
        "seconds": time.perf_counter() - start,
    }


def attempt(job: tuple[str, str, int], epochs: int, data: str | None, device: str, out: Path) -> str | None:
    """Run one job and store it; return what went wrong, if anything."""
    benchmark, method, seed = job
    try:
        outcome = run(benchmark, method, seed, epochs, data, device)
    except Exception:
        return f"{benchmark} {method} seed {seed} failed:\n{traceback.format_exc()}"
    path = out / f"{benchmark}-{method}-{seed}-{epochs}.json"
    path.with_suffix(".tmp").write_text(json.dumps(outcome))
    os.replace(path.with_suffix(".tmp"), path)
    return None


def table(outcomes: Sequence[dict[str, Any]], where: str) -> str:
    """Return the table, best first, and the verdicts on the papers' order."""
    lines = ["# All methods on the same tasks", "", where, ""]
    for benchmark in dict.fromkeys(o["benchmark"] for o in outcomes):
        rows = {}
        for method in dict.fromkeys(o["method"] for o in outcomes if o["benchmark"] == benchmark):
            own = [o for o in outcomes if o["benchmark"] == benchmark and o["method"] == method]
            accs = [o["acc"] for o in own]
            spread = stdev(accs) if len(accs) > 1 else 0.0
            forgotten = mean(o["forgetting"] for o in own)
            rows[method] = (mean(accs), spread, forgotten, all(o["unchanged"] for o in own), own)
        lines += [f"## {benchmark}", "", "| method | accuracy | ± | forgetting | old tasks bit-identical | s a run |"]
        lines += ["|---|---:|---:|---:|:---:|---:|"]
        for method, (acc, spread, forgotten, same, own) in sorted(rows.items(), key=lambda r: -r[1][0]):
            seconds = mean(o["seconds"] for o in own)
            mark = "yes" if same else "–"
            lines.append(f"| {method} | {acc:.4f} | {spread:.4f} | {forgotten:.4f} | {mark} | {seconds:.0f} |")
        lines += ["", *verdicts({m: (r[0], r[2]) for m, r in rows.items()}), ""]
    return "\n".join(lines)


def verdicts(rows: dict[str, tuple[float, float]]) -> list[str]:
    """Hold the order of results against the papers'."""
    found = []
    for method in ABOVE:
        if method in rows and "sgd" in rows:
            gap = rows[method][0] - rows["sgd"][0]
            found.append(f"- {method} above sgd by {gap:+.4f}: {'yes' if gap >= MARGIN else 'NO'}")
    if "joint" in rows:
        learned = {m: r for m, r in rows.items() if m not in ("one", "finetune-copy")}
        best = max(learned, key=lambda m: learned[m][0])
        behind = learned[best][0] - rows["joint"][0]
        found.append(f"- joint on top: {'yes' if behind <= 0.005 else 'NO'} (best {best}, {behind:+.4f} above joint)")
    kept = {m: rows[m][1] == 0 for m in EXACT if m in rows}
    found += [f"- {m} forgets nothing: {'yes' if exact else 'NO'}" for m, exact in kept.items()]
    return found


def main() -> int:
    """Run what is missing, then write the table."""
    from hatrack.methods import METHODS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the image sets (or HATRACK_DATA)")
    parser.add_argument("--benchmarks", nargs="+", default=list(BENCHMARKS))
    parser.add_argument("--methods", nargs="+", default=sorted(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy"))
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = [(b, m, s) for b in given.benchmarks for m in given.methods for s in given.seeds]
    name = "{}-{}-{}-" + f"{given.epochs}.json"
    left = [job for job in jobs if not (given.out / name.format(*job)).exists()]
    failures = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(attempt, job, given.epochs, given.data, given.device, given.out): job for job in left}
        for done, future in enumerate(as_completed(waiting), start=1):
            problem = future.result()
            print(f"{done}/{len(left)} {' '.join(map(str, waiting[future]))}", flush=True)
            if problem:
                failures.append(problem)
                print(problem, file=sys.stderr, flush=True)
    outcomes = [json.loads((given.out / name.format(*job)).read_text()) for job in jobs
                if (given.out / name.format(*job)).exists()]  # fmt: skip
    where = (
        f"MLP of {WIDTHS}, at most {given.epochs} epochs a task, seeds {given.seeds}, all methods at the settings "
        f"that `hatrack list methods` shows. Made by `python benchmarks/accuracy.py --epochs {given.epochs}`."
    )
    text = table(outcomes, where)
    print(text)
    if given.table:
        given.table.write_text(text + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
