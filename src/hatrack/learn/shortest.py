"""The shortest batch of an epoch, its last one, where batch norm cannot normalise it.

A batch norm that sees one value a channel and sample has nothing to normalise by where a batch holds one sample. Such
a last batch is left out; the next epoch, shuffled anew, leaves out another sample.
"""

from __future__ import annotations

from hatrack.data.feed import Feed
from hatrack.errors import HatrackError
from hatrack.learn.parallel import crew
from hatrack.nets.model import Model


def count_steps(model: Model, feed: Feed, size: int) -> int:
    """Return the steps of an epoch in batches of `size`, for the network in the mode in which it is trained."""
    steps = feed.steps(size)
    place = crew()
    least = 2 if place is None else 2 * place.size  # two for each process's share
    if len(feed) - (steps - 1) * size >= least or model.trains_on_one():
        return steps
    if min(size, len(feed)) < least:
        got = f"a batch size of {size}; raise it" if size < least else f"a task of {len(feed)} to train on; add some"
        where = "" if place is None else f" ({place.size} processes)"
        raise HatrackError(
            f"the batch norm of {type(model.net).__name__} needs {least} samples a step or more{where}, got {got}."
        )
    return steps - 1
