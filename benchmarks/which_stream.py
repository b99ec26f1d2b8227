"""Digits whose tasks switch unannounced and recur: what does learner.observe take each batch for?

    python benchmarks/which_stream.py

When a task comes for the first time its batches are of its training samples, later of samples that it has not seen. A
mistake is a batch of a known task that is put aside or taken for another one, or one of a new task that is taken for a
known one.
"""

from __future__ import annotations

import torch

import hatrack
from hatrack.nets import make

ORDER = (0, 1, 0, 2, 1, 3, 0, 2, 4, 3, 1, 4)
BATCH, ENOUGH, TIMES = 24, 192, 3


def main(seed: int) -> None:
    """Print what became of the batches of one stream."""
    tasks = hatrack.tasks("split-digits", seed=seed)
    torch.manual_seed(seed)
    learner = hatrack.Learner(make("mlp", (1, 8, 8), widths=(400, 400)), hatrack.HAT(), epochs=50, seed=seed)
    owner: dict[str | None, int] = {}
    counts = {"known": 0, "known, mistaken": 0, "new": 0, "new, mistaken": 0}
    for place, task in enumerate(ORDER):
        before = ORDER[:place].count(task)
        x, y = (tasks[task].test if before else tasks[task].train).on(torch.device("cpu"))
        rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        third = len(rows) // TIMES
        for part in (rows[third * (before - 1) :][:third] if before else rows).split(BATCH):
            new = task not in owner.values()
            got = learner.observe(x[part], y[part] + 2 * task, enough=ENOUGH)
            if got.new:
                owner[got.task] = task
            counts["new" if new else "known"] += 1
            right = got.new or got.task is None if new else owner.get(got.task) == task
            counts["new, mistaken" if new else "known, mistaken"] += not right
    print(f"seed {seed}: {len(owner)} of 5 tasks were learned; batches: {counts}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed in range(3):
        main(seed)
