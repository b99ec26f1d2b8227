"""How well each score finds tasks that nobody names, and what it costs: python benchmarks/which_task.py RUN …

Each RUN is a folder that `hatrack run` wrote. Times are the processor's, of `predict` on up to 1000 test
samples of one task, with the task named and not, in turns; the median of nine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean, median
from time import process_time

from hatrack.learn.learner import Learner
from hatrack.learn.which.measured import measured
from hatrack.learn.which.scores import SCORES
from hatrack.runs import spec
from hatrack.runs.folder import Folder
from hatrack.runs.setup import prepare

TURNS, SAMPLES = 9, 1000


def learner_of(run: Path) -> Learner:
    """Return a finished run's learner, with its tasks at hand."""
    folder = Folder(run)
    return prepare(spec.read(folder.spec), folder.checkpoint).learner


def times(learner: Learner) -> tuple[float, float]:
    """Return the seconds of processor time that samples take with their task named, and without."""
    x = learner._tests[0].split.first(SAMPLES)
    named, free = list[float](), list[float]()
    for _ in range(TURNS):
        for taken, task in ((named, 0), (free, None)):
            began = process_time()
            learner.predict(x, task)  # type: ignore[call-overload]
            taken.append(process_time() - began)
    return median(named), median(free)


def main(runs: list[Path]) -> None:
    """Print a row a score, of all runs together."""
    learners = [learner_of(run) for run in runs]
    print("| score | right | task found | called none | AUROC of none |\n|---|---|---|---|---|")
    for score in SCORES:
        found = [each for learner in learners if (each := measured(learner, score)) is not None]
        hit = [fmean(row[task] for task, row in enumerate(each["found"])) for each in found]
        right = [fmean(each["accuracy"]) for each in found]
        none, auroc = fmean(fmean(each["none"]) for each in found), fmean(each["auroc"] for each in found)
        each = ", ".join(f"{value:.4f}" for value in right)
        print(f"| {score} | {fmean(right):.4f} ({each}) | {fmean(hit):.4f} | {none:.3f} | {auroc:.3f} |")
    named, free = times(learners[0])
    tasks = learners[0].finished
    held = [sum(t.nbytes for t in learned.which.tensors().values()) for learned in learners[0].tasks if learned.which]
    print(f"\n{tasks} tasks: {free / named:.1f} × a pass with the task named; {fmean(held) / 1024:.0f} KiB a task")


if __name__ == "__main__":
    main([Path(run) for run in sys.argv[1:]])
