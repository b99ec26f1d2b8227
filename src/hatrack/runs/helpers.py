"""What the other processes of a run do: the same training, without a folder, a report or a word.

The first process owns the folder, evaluates, records and saves; all of them hold the same network (see
hatrack.learn.parallel).
"""

from __future__ import annotations

from hatrack.learn.parallel import crew
from hatrack.runs.setup import Setup


def helps() -> bool:
    """Return whether this process is one of several, and not the first."""
    place = crew()
    return place is not None and place.rank > 0


def meet() -> None:
    """Wait until every process has read what it needs, before the first one writes."""
    place = crew()
    if place is not None:
        place.wait()


def help_learn(setup: Setup) -> None:
    """Take part in the training of all tasks that are left."""
    meet()
    for task in setup.tasks[setup.learner.finished :]:
        setup.learner.learn(task)
