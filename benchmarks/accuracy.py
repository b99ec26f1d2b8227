"""All methods on the same tasks: one command, one table, and whether the order of results is the papers'.

    python benchmarks/accuracy.py --data DIR            (writes docs/results/accuracy.md)

Every method gets the same network, epochs, batches and learning rate; those whose paper trains with another optimiser
keep their own. What the papers tune for each benchmark is set in SETTINGS and printed in the table; it was chosen on
validation accuracy, with seeds that are not in the table (`--seeds 10 11 --held-out` shows those figures).

Every run's outcome is a small JSON file in --out, named by a digest of all that decides it; what is there is not run
again, so a killed benchmark goes on where it was, and a changed default is run anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

HERE = Path(__file__).resolve().parent
EPOCHS = {"split-mnist": 5, "permuted-digits": 15}
WIDTHS = (100, 100)
LR = 0.25  # SPG's; at HAT's 0.05 plain fine-tuning hardly forgets split-mnist, and nothing could be told apart
OWN_OPTIMISER = ("den", "supsup", "tag", "ucl")  # Adam or RMSProp, at a learning rate of their own
ABOVE = ("hat", "pmask", "spg", "packnet", "supsup", "pnn", "ewc", "si")  # must beat sgd clearly
EXACT = ("hat", "pmask")  # must not forget at all
MARGIN = 0.02
UPPER = ("joint", "replay-all", "one", "finetune-copy", "pnn")  # have all the data, or a network a task
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("split-mnist", "si"): {"c": 1.0, "xi": 0.001},  # the paper's own for split MNIST; its others are the defaults
    ("split-mnist", "ewc"): {"lam": 50_000.0},  # of 5e3, 5e4, 5e5, 5e6; the end of the grid in HAT's paper
    ("split-mnist", "pathnet"): {"modules": 10},  # the paper's own for MNIST
    ("permuted-digits", "pathnet"): {"modules": 10},
    ("split-mnist", "lwf"): {"lam": 0.1},  # of 0.1, 0.5, 2
    ("permuted-digits", "lwf"): {"lam": 0.1},
    ("split-mnist", "tag"): {"lr": 1e-4},  # of 1e-4 and 2.5e-4
    # of lr 0.001, 0.005; lr_rho 0.001, 0.01, 0.02; beta 2e-4, 0.002, 0.03
    ("split-mnist", "ucl"): {"lr_rho": 0.02, "beta": 0.002},
    ("permuted-digits", "ucl"): {"lr": 0.005, "lr_rho": 0.02},
    ("permuted-digits", "hpg"): {"threshold": 0.9},  # of 0.5, 0.7, 0.9; the paper searches it
    ("permuted-digits", "joint"): {"lr_patience": 2},  # of 1, 2, 5
    ("permuted-digits", "imm-mean"): {"lam": 10.0},  # of 1e-4, 0.01, 0.1, 1, 10
}


@dataclass(frozen=True)
class Job:
    """One training run, with all that decides its outcome."""

    benchmark: str
    method: str
    seed: int
    epochs: int
    settings: dict[str, Any]
    widths: tuple[int, ...] = WIDTHS
    hyper: dict[str, Any] = field(default_factory=dict)

    def path(self, folder: Path) -> Path:
        """Return the file of the outcome."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]
        return folder / f"{self.benchmark}-{self.method}-{self.seed}-{digest}.json"


def job(benchmark: str, method: str, seed: int, epochs: int) -> Job:
    """Return a run with its settings resolved."""
    from hatrack.methods import METHODS

    own = METHODS[method]
    common = {"lr": LR} if own.trains and method not in OWN_OPTIMISER else {}
    settings = {**common, **SETTINGS.get((benchmark, method), {})}
    return Job(benchmark, method, seed, epochs, settings, hyper=asdict(own(**settings)))


def run(given: Job, data: str | None, device: str) -> dict[str, Any]:
    """Train one method on one benchmark and return its accuracies and time."""
    import torch

    import hatrack
    from hatrack.data.task import Task
    from hatrack.learn.learner import Learner
    from hatrack.learn.seeds import noise
    from hatrack.measure import average_accuracy, forgetting
    from hatrack.methods import METHODS
    from hatrack.nets import build

    torch.set_num_threads(1)
    tasks = hatrack.tasks(given.benchmark, seed=given.seed, data=data)
    shape = tuple(tasks[0].train.first(1).shape[1:])
    with noise(given.seed, "net", device=torch.device("cpu")):
        net = build("mlp", shape, widths=given.widths, dropout=0.0, input_dropout=0.0)
    method = METHODS[given.method](**given.settings)
    learner = Learner(net, method, epochs=given.epochs, seed=given.seed, device=device)
    start = time.perf_counter()
    for task in tasks:
        learner.learn(task)
    seconds, matrix = time.perf_counter() - start, learner.matrix()
    held_out = [Task(t.name, t.train, test=t.valid, classes=t.classes, inputs=t.inputs) for t in tasks]
    return {
        "job": asdict(given),
        "accuracy": matrix,
        "acc": average_accuracy(matrix),
        "held_out": mean(learner.evaluate(task, i) for i, task in enumerate(held_out)),
        "forgetting": forgetting(matrix),
        "unchanged": learner.verify().ok,
        "seconds": seconds,
    }


def attempt(given: Job, data: str | None, device: str, out: Path) -> str | None:
    """Run one job and store it; return what went wrong, if anything."""
    try:
        outcome = run(given, data, device)
    except Exception:
        return f"{given.benchmark} {given.method} seed {given.seed} failed:\n{traceback.format_exc()}"
    path = given.path(out)
    path.with_suffix(".tmp").write_text(json.dumps(outcome))
    os.replace(path.with_suffix(".tmp"), path)
    return None


def run_all(jobs: Sequence[Job], workers: int, data: str | None, device: str, out: Path) -> list[str]:
    """Run the jobs that have no outcome yet; return what went wrong."""
    left = [each for each in jobs if not each.path(out).exists()]
    failures = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(attempt, each, data, device, out): each for each in left}
        for done, future in enumerate(as_completed(waiting), start=1):
            problem, each = future.result(), waiting[future]
            print(f"{done}/{len(left)} {each.benchmark} {each.method} seed {each.seed}", flush=True)
            if problem:
                failures.append(problem)
                print(problem, file=sys.stderr, flush=True)
    return failures


# ---- the page

READING = """\
## How to read it

- The network is small and the learning rate high so that there is something to forget. With HAT's 0.05 and wider
  layers, plain fine-tuning on split-mnist ends at 0.98 and more, and methods differ by less than seeds do.
- Just learned minus accuracy is what was lost later. Methods that keep a mask, a path or a network a task lose nothing;
  what they pay is room: on ten permutations in 100 units a layer, later tasks find little of the network free, and
  their accuracy just after learning is lower than that of plain fine-tuning.
- The regularisers lose a little and learn a little less. Their weights are the papers' (si, ewc, online-ewc,
  imm-mode), or chosen on validation where a paper names none that carries over (ewc-gi, lfl) or tunes it for each
  benchmark (ewc on split-mnist: with HAT's λ of 5000 it was above sgd by 0.008 only, 50000 is the end of HAT's grid).
- sgd-restart goes back to the first weights before every task and knows the last one only; random draws labels.
- Joint training fits all tasks into one network, from scratch. `one`, `finetune-copy` and `pnn` have a network a task,
  and permutations have nothing in common to share: there joint can at best come level. `replay-all` has all the data
  too, and goes on training the same network: by the last task it has trained as often as there are tasks. These are
  upper references like joint itself, and left out of the question whether joint is on top.
- No old task of cat's has changed: it took none for similar, and is hat with a longer patience.
- What is set beside lr is either the paper's own for such data (si, pathnet) or was chosen on validation accuracy with
  seeds 10 and 11 (ewc, hpg, imm-mean, joint, lwf, tag, ucl): the papers tune these for each benchmark, or their
  constants are meant for other learning rates or for a hundred epochs. The candidates stand in
  benchmarks/accuracy.py.
- Seconds are those of a machine shared with other work: an order of magnitude, no more.
"""


@dataclass(frozen=True)
class Row:
    """A method's runs on one benchmark."""

    runs: list[dict[str, Any]]

    def mean(self, key: str) -> float:
        """Return the mean of a figure over seeds."""
        return float(mean(run[key] for run in self.runs))

    @property
    def error(self) -> float:
        """Return the standard error of the accuracy."""
        return stdev(run["acc"] for run in self.runs) / sqrt(len(self.runs)) if len(self.runs) > 1 else 0.0

    @property
    def learned(self) -> float:
        """Return the mean accuracy of tasks just after they were learned."""
        return float(mean(mean(row[-1] for row in run["accuracy"]) for run in self.runs))

    @property
    def unchanged(self) -> bool:
        """Whether no old task has changed in the last bit, in any run."""
        return all(run["unchanged"] for run in self.runs)

    @property
    def settings(self) -> str:
        """Return what was set, in words."""
        return ", ".join(f"{k} {v:g}" for k, v in self.runs[0]["job"]["settings"].items()) or "defaults"


def table(rows: dict[str, Row], shown: str) -> list[str]:
    """Return the table of one benchmark, best first."""
    lines = [
        "| method | accuracy | ± | just learned | forgetting | old tasks bit-identical | set | s a run |",
        "|---|---:|---:|---:|---:|:---:|---|---:|",
    ]
    for method, row in sorted(rows.items(), key=lambda item: -item[1].mean(shown)):
        lines.append(
            f"| {method} | {row.mean(shown):.4f} | {row.error:.4f} | {row.learned:.4f} | {row.mean('forgetting'):.4f} "
            f"| {'yes' if row.unchanged else '–'} | {row.settings} | {row.mean('seconds'):.0f} |"
        )
    return lines


def verdicts(rows: dict[str, Row]) -> list[str]:
    """Hold the order of results against the papers'."""
    found = []
    for method in ABOVE:
        if method in rows and "sgd" in rows:
            gap = rows[method].mean("acc") - rows["sgd"].mean("acc")
            found.append(f"- {method} above sgd by {gap:+.4f}: {'yes' if gap >= MARGIN else 'NO'}")
    if "joint" in rows:
        others = [method for method in rows if method not in UPPER]
        best = max(others, key=lambda method: rows[method].mean("acc"))
        lead = rows["joint"].mean("acc") - rows[best].mean("acc")
        answer = "yes" if lead >= 0 else "within one standard error" if -lead <= rows["joint"].error else "NO"
        found.append(f"- joint on top of all with one network and no old data: {answer} (next: {best}, {lead:+.4f})")
    for method in EXACT:
        if method in rows:
            exact = all(run["forgetting"] == 0 for run in rows[method].runs) and rows[method].unchanged
            found.append(f"- {method} forgets nothing: {'yes' if exact else 'NO'}")
    return found


def page(outcomes: Sequence[dict[str, Any]], seeds: Sequence[int], shown: str, hardware: str) -> str:
    """Return the page in Markdown."""
    lines = [
        "# All methods on the same tasks",
        "",
        f"Made by `python benchmarks/accuracy.py --data DIR` on {hardware}.",
        "",
        f"An MLP with hidden layers of {' and '.join(map(str, WIDTHS))} units, no dropout, one head a task, batches of "
        f"64, seeds {', '.join(map(str, seeds))}. SGD at {LR} for every method but those whose paper trains with "
        f"Adam or RMSProp ({', '.join(OWN_OPTIMISER)}). Accuracy: the mean test accuracy of all tasks after the last; "
        f"±: its standard error over seeds. Just learned: the accuracy of each task right after it was learned.",
        "",
    ]
    for benchmark in dict.fromkeys(outcome["job"]["benchmark"] for outcome in outcomes):
        here = [outcome for outcome in outcomes if outcome["job"]["benchmark"] == benchmark]
        methods = dict.fromkeys(outcome["job"]["method"] for outcome in here)
        rows = {m: Row([outcome for outcome in here if outcome["job"]["method"] == m]) for m in methods}
        epochs = ", ".join(str(e) for e in dict.fromkeys(outcome["job"]["epochs"] for outcome in here))
        lines += [f"## {benchmark}", "", f"{epochs} epochs a task.", "", *table(rows, shown), ""]
        lines += [*verdicts(rows), ""]
    return "\n".join([*lines, READING])


def main() -> int:
    """Run what is missing, then write the page."""
    from hatrack.methods import METHODS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the image sets (or HATRACK_DATA)")
    parser.add_argument("--benchmarks", nargs="+", default=list(EPOCHS), choices=list(EPOCHS))
    parser.add_argument("--methods", nargs="+", default=sorted(METHODS), choices=sorted(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, help=f"a task; by default {EPOCHS}")
    parser.add_argument("--held-out", action="store_true", help="show validation instead of test accuracy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("runs/accuracy"))
    cores = f"{os.cpu_count()} CPU cores, one thread a run"
    parser.add_argument("--hardware", default=cores, help="the machine in words, for the page")
    parser.add_argument("--page", type=Path, help="by default docs/results/accuracy.md when all methods are asked for")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = [
        job(benchmark, method, seed, given.epochs or EPOCHS[benchmark])
        for benchmark in given.benchmarks
        for seed in given.seeds
        for method in given.methods
    ]
    failures = run_all(jobs, given.workers, given.data, given.device, given.out)
    outcomes = [json.loads(each.path(given.out).read_text()) for each in jobs if each.path(given.out).exists()]
    text = page(outcomes, given.seeds, "held_out" if given.held_out else "acc", given.hardware)
    print(text)
    whole = set(given.methods) == set(METHODS) and set(given.benchmarks) == set(EPOCHS) and not given.held_out
    target = given.page or (HERE.parent / "docs" / "results" / "accuracy.md" if whole else None)
    if target:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
