"""A behaviour: what a method must do, how that is looked at, and what is said where it does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from hatrack.data.task import Task
from hatrack.errors import HatrackError, HatrackWarning, one_line
from hatrack.learn.fit import Epoch
from hatrack.learn.learner import Learner
from hatrack.testing.case import Case, differing


@dataclass(frozen=True)
class Behaviour:
    """What a method must do, and on which networks that is looked at."""

    must: str
    nets: tuple[str, ...]
    check: Callable[[Case], str | None]  # returns a remark, such as why it was not looked at

    def hold(self, case: Case) -> str:
        """Hold a method to it; return what was found, in a line."""
        try:
            with alone():
                remark = self.check(case)
        except Exception as error:
            broken = f"{case.method.__name__} must {self.must} (network: {case.net}): {one_line(error)}"
            raise AssertionError(broken) from error
        return f"{case.net}: {self.must}" + ("" if remark is None else f" ({remark})")


@contextmanager
def alone() -> Iterator[None]:
    """Compute with one thread, as a second one only costs on nets this small. Warnings are left out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore", HatrackWarning)
            yield
    finally:
        torch.set_num_threads(threads)


Check = Callable[[Case], str | None]


def behaviour(must: str, *nets: str) -> Callable[[Check], Behaviour]:
    """Make a behaviour of a check."""
    return lambda check: Behaviour(must, nets, check)


# ---- what checks are made of


def refusal(learner: Callable[[], Learner], tasks: Sequence[Task]) -> str | None:
    """Have tasks learned, and any promise kept; return the line if that is refused, before anything was trained."""
    seen: list[Epoch] = []
    try:
        made = learner()
        made.learn(tasks[0], on_epoch=seen.append)
        x = tasks[0].train.first(40)
        before = made.predict(x, 0).clone()
        for task in tasks[1:]:
            made.learn(task, on_epoch=seen.append)
    except HatrackError as error:
        line = str(error)
        require(not seen, f"refused only after training had begun: {line}")
        require("\n" not in line, f"refused in more than a line: {line}")
        require(len(line) > 30, f"says neither what is unsupported nor what to do: {line}")
        return line
    if made.method.promises():
        require(
            not differing({"": before}, {"": made.predict(x, 0)}),
            "it promises that finished tasks do not change, and the first task's logits did",
        )
        require_unchanged(made)
    return None


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError, under `python -O` too."""
    if not holds:
        raise AssertionError(otherwise)


def require_unchanged(learner: Learner) -> None:
    """Raise AssertionError where a promise is made and not kept."""
    verdict = learner.verify()
    require(verdict.ok or not learner.method.promises(), str(verdict))


def require_same(found: Mapping[str, Any], expected: Mapping[str, Any], when: str) -> None:
    """Raise AssertionError with the names of what is not the same."""
    odd = [key for key in expected.keys() | found.keys() if found.get(key) != expected.get(key)]
    require(not odd, f"{when}: not as it was: {', '.join(sorted(odd))}")
