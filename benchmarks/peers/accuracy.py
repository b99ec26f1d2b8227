"""hatrack and Avalanche side by side: the same tasks, network, first weights, batches and budget.

    sh benchmarks/peers/setup.sh                          (once: Avalanche's own virtual environment)
    python benchmarks/peers/accuracy.py --data DIR        (writes docs/results/peers-accuracy.md)

Every side tries the candidates of contests.py on the first seed, keeps the setting with the best final validation
accuracy, and runs it on the other seeds. Outcomes are kept in --work and not run again; --fresh drops ours, which a
change to hatrack makes stale.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from contests import CONTESTS  # noqa: E402
from export import export  # noqa: E402
from protocol import Budget, Job, Side  # noqa: E402
from table import Result, page  # noqa: E402

PEER = HERE / ".venv-avalanche"
Outcome = dict[str, Any]


class Runner:
    """Runs jobs of one side in its own interpreter, one process for all of them."""

    def __init__(self, script: str, python: str, work: Path, name: str) -> None:
        self._command = [python, str(HERE / script)]
        self._work = work
        self._out = work / name
        self._out.mkdir(parents=True, exist_ok=True)

    def __call__(self, jobs: Sequence[Job]) -> None:
        """Run the jobs that have no outcome yet."""
        unique = {job.path(self._out): job for job in jobs}
        missing = [asdict(job) for path, job in unique.items() if not path.exists()]
        if missing:
            listed = self._out / "jobs.json"
            listed.write_text(json.dumps(missing))
            where = ["--jobs", str(listed), "--tasks", str(self._work), "--out", str(self._out)]
            subprocess.run([*self._command, *where], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def outcome(self, job: Job) -> Outcome:
        """Return what a job gave."""
        outcome: Outcome = json.loads(job.path(self._out).read_text())
        return outcome


def best(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome with the best final validation accuracy; of equal ones, the first."""
    return max(outcomes, key=lambda outcome: mean(outcome["valid"]))


def contend(run: Runner, sides: Sequence[Side], seeds: Sequence[int], budget: Budget) -> list[Result]:
    """Choose every side's setting on the first seed and run it on all."""
    tried = [[Job(side.name, settings, seeds[0], budget) for settings in side.settings()] for side in sides]
    run([job for jobs in tried for job in jobs])
    outcomes = [[run.outcome(job) for job in jobs] for jobs in tried]
    chosen = [best(each)["job"]["settings"] for each in outcomes]
    final = [[Job(side.name, c, seed, budget) for seed in seeds] for side, c in zip(sides, chosen, strict=True)]
    run([job for jobs in final for job in jobs])
    return [
        Result(
            side, settings, [(o["job"]["settings"], mean(o["valid"])) for o in tries], [run.outcome(j) for j in jobs]
        )
        for side, settings, tries, jobs in zip(sides, chosen, outcomes, final, strict=True)
    ]


def main() -> int:
    """Export, run both sides, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the image sets (or HATRACK_DATA)")
    parser.add_argument("--methods", nargs="+", help="ours, by name; all by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--train", type=int, default=Budget.train, help="training images a task")
    parser.add_argument("--epochs", type=int, default=Budget.epochs)
    parser.add_argument("--lr", type=float, default=Budget.lr)
    parser.add_argument("--work", type=Path, default=Path("runs/peers"))
    parser.add_argument("--fresh", action="store_true", help="run our side again, as after a change to hatrack")
    parser.add_argument("--page", type=Path, default=HERE.parents[1] / "docs" / "results" / "peers-accuracy.md")
    given = parser.parse_args()
    if not (PEER / ".ready").exists():
        print("Avalanche's environment is missing: run sh benchmarks/peers/setup.sh first.", file=sys.stderr)
        return 1
    contests = [c for c in CONTESTS if given.methods is None or c.ours.name in given.methods]
    budget = Budget(train=given.train, epochs=given.epochs, lr=given.lr)
    for seed in given.seeds:
        export(given.work, seed, budget, given.data)
    if given.fresh:
        for stale in (given.work / "ours").glob("*.json"):
            stale.unlink()
    theirs = Runner("avalanche_side.py", str(PEER / "bin" / "python"), given.work, "avalanche")
    ours = Runner("ours.py", sys.executable, given.work, "ours")
    pairs = list(
        zip(
            contend(ours, [c.ours for c in contests], given.seeds, budget),
            contend(theirs, [c.theirs for c in contests], given.seeds, budget),
            strict=True,
        )
    )
    text = page(pairs, budget, given.seeds)
    print(text)
    given.page.parent.mkdir(parents=True, exist_ok=True)
    given.page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
