"""What every method must do, whoever wrote it. In a test file of your own:

    def test_my_method() -> None:
        hatrack.testing.conforms(MyMethod, strength=0.5)

Each of BEHAVIOURS is a function of a case, a method on one of the small networks of NETS. They are asked of all of
hatrack's own methods, too.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatrack.methods.base import Method
from hatrack.testing import asking, failing, learning, predicting, releasing
from hatrack.testing.behaviour import Behaviour
from hatrack.testing.case import NETS, Case

__all__ = ["BEHAVIOURS", "NETS", "Case", "conforms"]

BEHAVIOURS: tuple[Behaviour, ...] = (
    learning.says_what_it_is,
    learning.learns_or_refuses,
    learning.learns,
    learning.is_deterministic,
    learning.loads_the_same,
    learning.resumes_the_same,
    learning.keeps_its_promise,
    learning.keeps_under_pushy_optimisers,
    learning.learns_in_bf16_without_round_trips,
    learning.runs_on_a_gpu,
    failing.forgets_what_fails,
    failing.forgets_what_is_given_up,
    asking.answers_while_it_learns,
    releasing.releases,
    predicting.learns_every_target,
)


def conforms(method: type[Method], *, epochs: int | None = None, **settings: Any) -> list[str]:
    """Hold a method with these settings to all of BEHAVIOURS; return what was asked of it, a line each.

    AssertionError names the first that is broken. `epochs`: a task's, where a network's own number does not do. A
    network may be refused, but not all of them.
    """
    lines: list[str] = []
    refusals: list[str | None] = []
    with TemporaryDirectory() as folder:
        for net in NETS:
            case = Case(method, net, Path(folder), settings, epochs)
            asked = (b for b in BEHAVIOURS if net in b.nets)
            lines += [b.hold(case) for b in asked if case.refusal is None]
            refusals.append(case.refusal)
    if None not in refusals:
        raise AssertionError(f"{method.__name__} must learn one network at least: {refusals[0]}")
    return lines
