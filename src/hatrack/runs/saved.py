"""Learners that no run has made: what they know in a run's files, and verdict and report on a saved one.

No file names the network of a saved learner, and none may: it is code, which is taken on the user's word alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from hatrack import atomic, report
from hatrack.errors import HatrackError, Unverifiable
from hatrack.learn.learner import Learner
from hatrack.learn.machine.parallel import writes
from hatrack.learn.proof.verification import Verification
from hatrack.learn.state import input_shape, load, verify
from hatrack.methods.hyper import hyperparameters
from hatrack.nets import build
from hatrack.runs import toml
from hatrack.runs.folder import Folder
from hatrack.runs.records import Records
from hatrack.runs.result import assemble, dumps, masks_of

OWN_TASKS = "own tasks"  # in place of a benchmark's name
PARTS = ("train", "valid", "test")


def write_report(learner: Learner, folder: Path) -> Path:
    """Write what a learner knows as a run would, and the report on it; return the page's path."""
    made, history = Folder(folder), learner.history
    if not history:
        raise HatrackError("no task is learned yet, so there is nothing to report.")
    if made.checkpoint.exists():
        raise HatrackError(f"{str(folder)!r} holds a run, which has a report of its own; give another folder.")
    if not writes():
        return made.report
    folder.mkdir(parents=True, exist_ok=True)
    spec = _spec(learner)
    known = zip(history, learner.tasks, strict=False)  # the task in progress is in the second alone
    tasks: list[dict[str, Any]] = [
        {"name": h.name, **dict.fromkeys(("classes", *PARTS)), "score": h.score}
        if h.released
        else {"name": h.name, "classes": t.classes, **dict.fromkeys(PARTS), **h.samples, **t.target.facts()}
        for h, t in known
    ]
    lines = [{"name": h.name, "accuracy": h.accuracy} for h in history]
    result = assemble(learner, spec, tasks, lines, sum(h.seconds for h in history))
    masks = masks_of(learner)
    made.result.unlink(missing_ok=True)  # it comes last: it says that the others are there
    atomic.write(made.spec, toml.dumps(spec))
    _write_epochs(learner, made.metrics, spec)
    if masks is None:
        made.masks.unlink(missing_ok=True)
    else:
        atomic.write(made.masks, save(masks))
    atomic.write(made.result, dumps(result))
    return report.write(folder)


def _spec(learner: Learner) -> dict[str, Any]:
    method, keys = learner.method, ("seed", "epochs", "batch_size", "engine")
    return {
        "method": method.name,
        "benchmark": OWN_TASKS,
        "net": type(learner.model.net).__name__,
        **{key: getattr(learner, key) for key in keys},
        "device": str(learner.device),
        "precision": learner.model.precision.name,
        "settings": {name: getattr(method, name) for name in hyperparameters(type(method))},
    }


def _write_epochs(learner: Learner, path: Path, spec: dict[str, Any]) -> None:
    path.unlink(missing_ok=True)
    records, seconds = Records(path), 0.0
    try:
        records.start(spec)
        for task, history in enumerate(learner.history):
            seconds += history.seconds
            for epoch in history.epochs:
                records.epoch(vars(epoch) | {"seconds": seconds})
            records.task(task, {"name": history.name, "accuracy": history.accuracy, "seconds": seconds})
    finally:
        records.close()


def report_saved(folder: Path, net: str | None, method: str | None = None) -> Path:
    """Write the report on the learner saved in `folder`, into it; return the page's path."""
    return write_report(load(folder, network_of(folder, net), method), folder)


def verify_saved(folder: Path, net: str | None, method: str | None = None) -> Verification:
    """Return the verdict on the learner saved in `folder`, and on its files."""
    try:
        return verify(folder, network_of(folder, net), method=method)
    except HatrackError as error:
        raise Unverifiable(str(error)) from error


def network_of(folder: Path, net: str | None) -> nn.Module:
    """Return the network of the learner saved in `folder`, which the user names."""
    if net is None:
        raise HatrackError(
            f"{str(folder)!r} holds a saved learner, which does not name its network: give --net, a name of "
            f"`hatrack list nets`, module:Name or file.py:Name."
        )
    shape = input_shape(folder)
    if shape is None:
        raise HatrackError(f"{str(folder)!r} holds a learner that has finished no task yet.")
    return build(net, shape)
