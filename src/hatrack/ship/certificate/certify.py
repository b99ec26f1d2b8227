"""A certificate: digests of all that every finished task is answered from, in canonical JSON, signed or not.

    tasks        by number: `parts` (see check_hatrack.py), `answers` to the task's probes, computed now, `cut_out`,
                 `exports` (files by name) and what ONNX files among these were `asked`
    method       its name, and whether it promises that finished tasks do not change
    environment  what the last bits of `answers` and `cut_out` depend on
    previous     the digest of the certificate before this one
    events       all that has become of tasks in the network's life; what was released is none of `tasks`
    key          the public key, and `signature`: of all but itself and `sha256`, which is the digest of all but itself

The digests of `parts` are taken by the checker itself, from a save of the learner.
"""

from __future__ import annotations

from collections.abc import Container
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatrack import __version__, atomic
from hatrack.errors import Edited, HatrackError, one_line
from hatrack.learn.machine.parallel import writes
from hatrack.learn.proof.seals import fingerprint
from hatrack.learn.proof.verification import environment, probe_logits
from hatrack.ship.aside import saved_aside
from hatrack.ship.certificate import check_hatrack as checker
from hatrack.ship.certificate.exports import exported
from hatrack.ship.certificate.signing import NEEDED, Signer
from hatrack.ship.stored import digest, packed

if TYPE_CHECKING:
    from hatrack.learn.core import Core

SCHEMA = 1


def certify(core: Core, path: Path, previous: Path | None, key: Path | None, exports: Path | None) -> Path:
    """Write the certificate of a learner whose finished tasks are as they were; return its path."""
    if not core.finished:
        raise HatrackError("no task is learned yet, so there is nothing to certify.")
    if core._updating is not None:
        name = core.tasks[core._updating].name
        raise HatrackError(f"task {name!r} is being updated; end that, or give it up with abandon(), and certify then.")
    if previous is not None and previous.resolve() == path.resolve():
        raise HatrackError(f"{str(path)!r} is the certificate before this one; give the new one a name of its own.")
    if not writes():
        return path
    signer = None if key is None else Signer(key)
    before = None if previous is None else _read(previous, signer)
    verdict = core.verify()
    if not verdict.ok:
        odd = next(proof for proof in verdict.tasks if not proof.ok)
        raise Edited(f"nothing is certified that is not as it was: {odd}.")
    parts, since = _parts(core, previous)
    if before is not None:
        _refuse_changed(before, parts, since, previous)
    tasks = [_task(core, t, parts[name], exports) for name, t in core._numbers().items()]
    if exports is not None and not any(task["exports"] for task in tasks):
        raise HatrackError(f"{str(exports)!r} holds no export of a finished task (no */card.json that names one).")
    page: dict[str, Any] = {
        "schema": SCHEMA,
        "hatrack": __version__,
        "method": {"name": core.method.name, "promises": core.method.promises()},
        "environment": environment(core.device),
        "previous": None if before is None else before["sha256"],
        "events": core.events,
        "tasks": tasks,
        "key": None if signer is None else signer.public,
    }
    page["signature"] = None if signer is None else signer.sign(checker.canonical(page))
    page["sha256"] = sha256(checker.canonical(page)).hexdigest()
    atomic.write(path, checker.canonical(page))
    return path


def _read(previous: Path, signer: Signer | None) -> dict[str, Any]:
    """Return the certificate that the new one is to follow."""
    try:
        page = checker.read(previous, None)
    except checker.Problem as problem:
        line, code = problem.args
        raise (Edited if code == 1 else HatrackError)(f"{line}.") from None
    except ImportError:
        raise HatrackError(NEEDED) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HatrackError(f"{str(previous)!r} is no certificate ({one_line(error)}).") from None
    if page["key"] not in (None, signer and signer.public):
        raise HatrackError(f"{str(previous)!r} is signed with {page['key']}: give that key, so that the chain goes on.")
    return page


def _parts(core: Core, previous: Path | None) -> tuple[dict[str, dict[str, str]], Container[str] | None]:
    """Return the parts of all tasks, and the tasks that something has become of since a certificate; None: not its."""
    with saved_aside(core) as folder:
        return dict(checker.of_saved(folder)), None if previous is None else checker.since(previous, folder)


def _refuse_changed(
    before: dict[str, Any], parts: dict[str, dict[str, str]], since: Container[str] | None, previous: Path | None
) -> None:
    """Refuse another network than that of `previous`, and one whose tasks have changed without an event."""
    if since is None:
        raise HatrackError(f"the events of {previous} are not in this learner's past; a chain is of one network.")
    for task in before["tasks"]:
        if task["name"] in since:
            continue
        then, now = task["parts"], parts.get(task["name"])
        if now is None:
            raise HatrackError(
                f"task {task['name']!r} of {previous} is not in this learner; a chain is of one network."
            )
        odd = [name for name in then | now if then.get(name) != now.get(name)]
        if odd:
            raise Edited(f"task {task['name']!r} is not what {previous} says of it: {', '.join(odd)}.")


def _task(core: Core, t: int, parts: dict[str, str], exports: Path | None) -> dict[str, Any]:
    """Return what is certified of one task."""
    learned = core.tasks[t]
    try:
        cut = core.cut_out(t)
        cut_out = {"sha256": digest(cut), "weights": sha256(packed(cut)).hexdigest(), "why": None}
    except HatrackError as error:
        cut_out = {"sha256": None, "weights": None, "why": str(error)}
    files, asked = (None, {}) if exports is None else exported(exports, learned.name, cut_out["sha256"], t)
    return {
        "name": learned.name,
        "parts": parts,
        "answers": fingerprint(probe_logits(core.method, core._drawn(t), t)),
        "cut_out": cut_out,
        "exports": files,
        "asked": asked,
    }
