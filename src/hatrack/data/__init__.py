"""Tasks and where they come from: named benchmarks, named image sets, the user's own pictures."""

from __future__ import annotations

from hatrack.data.augmenting import each
from hatrack.data.benchmarks import BENCHMARKS, Benchmark, tasks
from hatrack.data.image_set import Pictures, load
from hatrack.data.inputs import Inputs
from hatrack.data.samples import Split
from hatrack.data.split import class_tasks, one_task
from hatrack.data.task import Task
from hatrack.data.user import folder, parquet

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Inputs",
    "Pictures",
    "Split",
    "Task",
    "class_tasks",
    "each",
    "folder",
    "load",
    "one_task",
    "parquet",
    "tasks",
]
