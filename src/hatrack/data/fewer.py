"""A task with fewer samples to learn from, for experiments of a smaller size."""

from __future__ import annotations

import hashlib
from copy import copy

import numpy as np
import torch

from hatrack.data.rows import rows_of_each
from hatrack.data.task import Task
from hatrack.errors import HatrackError

OPTION = "train_per_class"  # of every benchmark that has no option of this name


def fewer(task: Task, most: int, seed: int) -> Task:
    """Return the task with at most `most` training samples a class, chosen by the seed, and validation in proportion.

    The test part stays as it is.
    """
    if most < 1:
        raise HatrackError(f"{OPTION} must be 1 or more, got {most}; leave it out to train on all samples.")
    labels = task.train.labels
    if labels is None:
        raise HatrackError(
            f"task {task.name!r}: {OPTION} needs labels that can be read at once; give the Dataset targets."
        )
    rng = np.random.default_rng(seed)
    strata = task.target.strata(labels)
    each = rows_of_each(strata.numpy(), np.arange(len(labels)), int(strata.max()) + 1)
    train = np.sort(np.concatenate([rng.permutation(rows)[:most] for rows in each]))
    parts = {"train": train}
    if task.valid is not None:
        count = max(1, round(len(task.valid) * len(train) / len(labels)))
        parts["valid"] = np.sort(rng.permutation(len(task.valid))[:count])
    about = {**task.about, **{part: len(rows) for part, rows in parts.items()}}
    about["notes"] = [*about.get("notes", []), f"at most {most} training samples a class, validation in proportion"]
    if "rows" in about:
        chosen = b"".join(rows.astype("<i8").tobytes() for rows in parts.values())
        about["rows"] = hashlib.sha256(about["rows"].encode() + chosen).hexdigest()[:16]
    kept = {part: getattr(task, part).take(torch.from_numpy(rows)) for part, rows in parts.items()}
    if task.sampler is not None and task.sampler.needs_all:
        raise HatrackError(f"task {task.name!r}: {OPTION} leaves out samples that its sampler draws; leave one out.")
    made = copy(task)
    made.train, made.about = kept["train"], about
    made.valid = kept.get("valid")
    return made
