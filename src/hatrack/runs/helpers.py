"""What the other processes of a run do: the same training, without a folder, a report or a word.

The first process owns the folder, evaluates, records and saves; all of them hold the same network (see
hatrack.learn.machine.parallel).
"""

from __future__ import annotations

from hatrack.learn.machine.parallel import process_group
from hatrack.runs.setup import Setup


def helps() -> bool:
    """Return whether this process is one of several, and not the first."""
    group = process_group()
    return group is not None and group.rank > 0


def meet() -> None:
    """Wait until every process has read what it needs, before the first one writes."""
    group = process_group()
    if group is not None:
        group.barrier()


def help_learn(setup: Setup) -> None:
    """Take part in the training of all tasks that are left."""
    meet()
    for task in setup.tasks[setup.learner.finished :]:
        setup.learner.learn(task, progress=False)
