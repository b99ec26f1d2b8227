"""Several runs that differ in their seed, carried out together on one device (see hatrack.learn.machine.side_by_side).

Each has a folder of its own and is an ordinary run: it can be resumed, verified and reported by itself, and its
result is the one it would have had alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from hatrack.errors import HatrackError
from hatrack.learn.callbacks import tell
from hatrack.learn.machine.side_by_side import together
from hatrack.loggers import beside
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.runs.folder import Folder
from hatrack.runs.runner import executing
from hatrack.runs.setup import Setup

MOST = 10_000
"""Seeds of one command."""


def parse_seeds(text: str) -> list[int]:
    """Read "0-7", "0,3,5" or a mixture."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise HatrackError(f"--seeds takes numbers and ranges such as 0-7 or 0,3,5; got {text!r:.99}.")
        named = range(int(match[1]), int(match[2] or match[1]) + 1)
        if len(seeds) + len(named) > MOST:
            raise HatrackError(f"--seeds takes at most {MOST} seeds, got {text!r:.99}.")
        seeds += named
    twice = [seed for seed, count in Counter(seeds).items() if count > 1]
    if twice:
        raise HatrackError(f"--seeds names seed {twice[0]} twice: {text!r}.")
    return seeds


def execute_together(
    setups: Sequence[Setup], folders: Sequence[Folder], callback: object, log: Sequence[str] = ()
) -> list[dict[str, Any] | Exception]:
    """Carry out all runs; return each one's result, or what stopped it. `log`: the loggers of each."""
    results: dict[int, dict[str, Any]] = {}

    def member(i: int, run: Generator[None, None, dict[str, Any]]) -> Iterator[None]:
        with folders[i]:  # what refuses the run passes here
            results[i] = yield from run

    runs = [
        member(i, executing(setup, folder, beside(_Named(callback, f"seed {setup.spec.seed}, "), log, folder.path)))
        for i, (setup, folder) in enumerate(zip(setups, folders, strict=True))
    ]
    stopped = together(runs, torch.device(setups[0].spec.device))
    return [results[i] if error is None else error for i, error in enumerate(stopped)]


class _Named:
    """Passes on what happens with the run's name before the task's; epochs are left out, there are too many."""

    def __init__(self, callback: object, name: str) -> None:
        self._callback, self._name = callback, name

    def on_start(self, plan: RunPlan) -> None:
        tell([self._callback], "on_start", plan)

    def on_task(self, result: TaskResult) -> None:
        tell([self._callback], "on_task", replace(result, name=self._name + result.name))
