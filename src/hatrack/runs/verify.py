"""Verify a run on disk: its files, its locked weights and the stored logits of every finished task."""

from __future__ import annotations

from pathlib import Path

from hatrack.errors import HatrackError
from hatrack.learn.proof import Verification
from hatrack.learn.state import PAGE, input_shape, verify
from hatrack.runs import folder
from hatrack.runs.setup import new_net
from hatrack.runs.spec import read


def verify_run(path: Path) -> Verification:
    """Return the verdict on the tasks that the run in `path` has finished so far."""
    try:
        held = folder.open_run(path)
    except PermissionError:  # somebody else's run, which can be read only: nothing is written here
        held = folder.Folder(folder.require(path))
    with held as opened:
        spec = read(opened.spec, anywhere=True)
        verdict = None
        if (opened.checkpoint / PAGE).exists():
            shape = input_shape(opened.checkpoint)
            verdict = None if shape is None else verify(opened.checkpoint, new_net(spec, shape), spec.device)
        finished = opened.result.exists()
    if verdict is None and finished:
        raise HatrackError(f"{str(path)!r} is finished, but its checkpoint is gone: there is nothing to verify it by.")
    if verdict is None or not verdict.tasks:
        raise HatrackError(f"{str(path)!r} has finished no task yet; go on with it: hatrack resume {path}")
    return verdict
