"""Exports of a run's tasks, or of a saved learner's; what they weigh and take is noted in the run's exports.json.

The file bears its own digest, as result.json does. What is exported again takes the place of what was noted before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatrack import __version__, atomic, report
from hatrack.errors import HatrackError, HatrackWarning, one_line
from hatrack.learn.learner import Learner
from hatrack.learn.state import PAGE, input_shape, load
from hatrack.report.exports import EXPORTS, read_exports
from hatrack.runs import folder
from hatrack.runs.result import dumps
from hatrack.runs.saved import network_of
from hatrack.runs.setup import new_net, sequence_of
from hatrack.runs.spec import Spec, read
from hatrack.ship.export.export import Exported, chosen
from hatrack.ship.export.table import forms, held

SCHEMA = 1


def export_run(
    path: Path,
    tasks: Sequence[str],
    format: str,
    int8: bool,
    out: Path | None,
    named: Mapping[str, str | None],
    tell: Callable[[Exported], object],
) -> None:
    """Export finished tasks of the run in `path`, all of them where none is named, each a folder within `out`.

    Also of a learner that was saved there, whose samples nobody knows. `named`: the user's word for code.
    """
    chosen(format)
    saved = (path / PAGE).exists()
    with _held(path, saved):
        learner, samples = _saved(path, named) if saved else _of_run(path, named)
        for name in tasks:
            learner.index(name)  # refuses what is not there
        for name in dict.fromkeys(tasks or learner._numbers()):
            made = learner.export(name, out or path / "exports", format=format, int8=int8, samples=samples.get(name))
            tell(made)
            if not saved:
                _note(path, made)
        if not saved and (path / "result.json").exists():
            report.write(path)


@contextmanager
def _held(path: Path, saved: bool) -> Iterator[None]:
    """Keep others from writing into a run while it is read; one that cannot be written to is read all the same."""
    if saved:
        yield
        return
    folder.require(path)
    try:
        opened = folder.Folder(path, folder.lock(path))
    except OSError:
        opened = folder.Folder(path)
    with opened:
        yield


def _saved(path: Path, named: Mapping[str, str | None]) -> tuple[Learner, dict[str, Any]]:
    return load(path, network_of(path, named.get("net")), named.get("method"), device="cpu"), {}


def _of_run(path: Path, named: Mapping[str, str | None]) -> tuple[Learner, dict[str, Any]]:
    """Return a run's learner, and its benchmark's tasks by name, as far as their samples are at hand."""
    run = folder.Folder(path)
    shape = input_shape(run.checkpoint) if (run.checkpoint / PAGE).exists() else None
    unfinished = HatrackError(f"{str(path)!r} has finished no task yet; go on with it: hatrack resume {path}")
    if shape is None:
        raise unfinished
    spec = read(run.spec, anywhere=True, named=named)
    learner = load(run.checkpoint, new_net(spec, shape), spec.new_method(), device="cpu", features=spec.features)
    if not learner.finished:
        raise unfinished
    return learner, _tasks(spec)


def _tasks(spec: Spec) -> dict[str, Any]:
    try:
        return {task.name: task for task in sequence_of(spec)}
    except (HatrackError, OSError) as error:
        line = f"the run's samples are not at hand ({one_line(error)}); exports are held against drawn inputs."
        warnings.warn(HatrackWarning(line), stacklevel=4)
        return {}


def _note(path: Path, made: Exported) -> None:
    """Note an export in the run's folder; where that cannot be written to, say so."""
    card, task = made.card, made.card["task"]
    known = {name: noted.model_dump(by_alias=True) for name, noted in read_exports(path).items()}
    entry = {"folder": made.folder.name, "score": card["score"]["name"], "held": held(card), "forms": [*forms(card)]}
    text = dumps({"schema": SCHEMA, "hatrack": __version__, "tasks": {**known, task: entry}})
    try:
        atomic.write(path / EXPORTS, text)
    except OSError as error:
        if error.errno in atomic.FULL:
            raise
        line = f"the figures of task {task!r} are not noted in {str(path)!r}: {error.strerror}."
        warnings.warn(HatrackWarning(line), stacklevel=4)
