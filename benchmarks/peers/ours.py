"""Our side. Run by the driver:

    python ours.py --jobs JOBS.json --tasks FOLDER --out FOLDER

hatrack's own learner and methods on the exported arrays. Its first weights and the order of its batches need no
import: they are functions of the seed, and what was exported is what they give.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from export import first_net
from protocol import TASKS, Job, arguments, read_jobs, write_outcome
from torch import Tensor

from hatrack.data.task import Task
from hatrack.learn.learner import Learner
from hatrack.methods import METHODS
from hatrack.methods.base import Method


class LastEpoch(Method):
    """Makes every epoch count as better than the one before.

    So the learner never lowers the learning rate, never stops early, and what it restores is the last epoch: the
    peer has none of the three.
    """

    validations = 0

    def valid_loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        self.validations += 1
        return torch.tensor(-float(self.validations))


def without_stopping(name: str) -> type[Method]:
    """Return hatrack's method `name`, trained to the last epoch."""
    return type(name, (LastEpoch, METHODS[name]), {})


def exported(path: Path) -> list[Task]:
    """Return the exported tasks."""
    with np.load(path) as stored:
        arrays = dict(stored)
    return [
        Task(f"task {t}", *((arrays[f"{part}/x/{t}"], arrays[f"{part}/y/{t}"]) for part in ("train", "valid", "test")))
        for t in range(TASKS)
    ]


def run(job: Job, tasks: list[Task]) -> tuple[list[list[float]], list[float]]:
    """Train all tasks; return the test accuracies after each and the final validation accuracies."""
    budget = job.budget
    net = first_net(tuple(tasks[0].train.first(1).shape[1:]), job.seed)
    method = without_stopping(job.name)(lr=budget.lr, **job.settings)
    learner = Learner(net, method, epochs=budget.epochs, batch_size=budget.batch, seed=job.seed, device="cpu")
    for task in tasks:
        learner.learn(task)
    swapped = [Task(task.name, task.train, test=task.valid) for task in tasks]
    return learner.matrix(), [learner.evaluate(task, t) for t, task in enumerate(swapped)]


def main() -> None:
    """Run the listed jobs."""
    given = arguments(__doc__)
    torch.set_num_threads(1)
    for job in read_jobs(given.jobs):
        start = time.perf_counter()
        test, valid = run(job, exported(job.budget.tasks_file(given.tasks, job.seed)))
        write_outcome(job, given.out, test, valid, time.perf_counter() - start)
        print(f"hatrack {job.name} {job.settings} seed {job.seed}: {sum(test[-1]) / TASKS:.4f}", flush=True)


if __name__ == "__main__":
    main()
