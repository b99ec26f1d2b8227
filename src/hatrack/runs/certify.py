"""Certify a run on disk, or a saved learner: what is verified first, and as it is verified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hatrack.learn.learner import Learner
from hatrack.learn.proof.verification import Verification
from hatrack.learn.state import PAGE, input_shape, load
from hatrack.runs import folder
from hatrack.runs.saved import network_of
from hatrack.runs.setup import new_net
from hatrack.runs.spec import read
from hatrack.runs.verify import verify_run


def certify_run(
    path: Path, out: Path, named: Mapping[str, str | None], certificate: Mapping[str, Path | None]
) -> Verification:
    """Return the verdict on the run in `path`, or on the learner saved there; where nothing changed, certify it too.

    `named`: the user's word for code, as for `verify_run`; `certificate`: what else `learner.certify` takes.
    """
    verdict = verify_run(path, named)
    if verdict.ok:
        _learner(path, named).certify(out, **certificate)
    return verdict


def _learner(path: Path, named: Mapping[str, str | None]) -> Learner:
    if (path / PAGE).exists():
        return load(path, network_of(path, named.get("net")), named.get("method"))
    run = folder.Folder(path)
    spec = read(run.spec, anywhere=True, named=named)
    net = new_net(spec, input_shape(run.checkpoint))
    return load(run.checkpoint, net, spec.new_method(), device=spec.device, features=spec.features)
