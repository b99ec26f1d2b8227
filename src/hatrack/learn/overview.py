"""A learner at a glance, for a notebook: its tasks, the score matrix, and how much of each layer they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hatrack.measure.shares import Share
from hatrack.notebook import ACCURACY, GATES, card, line, shares, table

if TYPE_CHECKING:
    from hatrack.learn.learner import Learner


def as_html(learner: Learner) -> str:
    """Return what a notebook shows of a learner."""
    method, names = learner.method, [learner._label(task) for task in range(learner.finished)]
    kind, numbers = f"{type(learner.model.net).__name__}, {method.name}", range(1, len(names) + 1)
    parts = [line(f"{learner.parameters_count:,} parameters on {learner.device}; {method.summary}")]
    if names:
        taken: Sequence[Share | None] = learner.capacity() or [None] * len(names)
        parts.append(table(
            ["task", "epochs", "seconds", "capacity after"],
            [
                [name, len(known.epochs), f"{known.seconds:.1f}", "–" if used is None else f"{used['total']:.1%}"]
                for name, known, used in zip(names, learner.history, taken, strict=True)
            ],
        ))  # fmt: skip
        rows = [(f"after {name}", *row) for name, row in zip(names, learner.matrix(), strict=True)]
        parts += [line(f"Test {_scores(learner)} on each task:"), shares(["", *numbers], rows, ACCURACY)]
        open_units = [(site, *opened) for site, opened in _open_units(learner).items()]
        if open_units:
            parts += [line("Share of each layer's units that a task uses:"), shares(["", *numbers], open_units, GATES)]
    count, gone = len(names), f", {len(learner.released)} of them released" if learner.released else ""
    return card(f"Learner ({kind}): {count} task{'' if count == 1 else 's'} learned{gone}", *parts)


def _scores(learner: Learner) -> str:
    """Name what the tasks are scored by."""
    return ", ".join(dict.fromkeys(known.score for known in learner.history))


def _open_units(learner: Learner) -> dict[str, list[float | None]]:
    """Return, site by site, the share of units that each task has open."""
    found: dict[str, list[float | None]] = {}
    for key, gate in (learner.masks() or {}).items():
        task, _, site = key.partition("/")
        found.setdefault(site, [None] * learner.finished)[int(task)] = float((gate > 0.5).float().mean())
    return found
