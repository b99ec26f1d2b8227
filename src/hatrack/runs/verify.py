"""Verify a run on disk: its files, its weights and the answers of every finished task. Nothing is written.

The checkpoint's page says what spec.toml is and how far metrics.jsonl goes, result.json what the last line of
metrics.jsonl and masks.safetensors are; both bear a digest of their own, as every line of metrics.jsonl does. So
no kill between two writes looks like a change: what is written first is vouched for by what is written next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hatrack.errors import HatrackError, Unverifiable, one_line
from hatrack.learn.proof.verification import Verification
from hatrack.learn.state import PAGE, input_shape, of_run, verify
from hatrack.report.exports import EXPORTS
from hatrack.report.read import refuse_edited
from hatrack.runs import folder, records
from hatrack.runs.saved import verify_saved
from hatrack.runs.setup import new_net
from hatrack.runs.spec import read
from hatrack.seal import digest
from hatrack.seal import intact as intact_text

NOT_SEALED = (
    "This run was written by version 0.1, which sealed the checkpoint only: spec.toml, metrics.jsonl, result.json and "
    "masks.safetensors are not compared."
)


def verify_run(path: Path, named: Mapping[str, str | None] | None = None) -> Verification:
    """Return the verdict on the tasks that the run in `path` has finished so far, and on its files.

    Also on a learner that was saved there. `named` is the user's word for code: what a run needs (see `spec.read`), and
    the network of a saved learner.
    """
    if (path / PAGE).exists():
        named = named or {}
        return verify_saved(path, named.get("net"), named.get("method"))
    if not (path / "checkpoint").exists():
        folder.require(path)
    try:
        folder.require(path)
        with _opened(path) as opened:
            return _verdict(opened, named)
    except HatrackError as error:
        raise Unverifiable(str(error)) from error
    except OSError as error:
        raise Unverifiable(f"{error.filename or path} cannot be read ({error.strerror}).") from error


def _opened(path: Path) -> folder.Folder:
    try:
        return folder.Folder(path, folder.lock(path))
    except OSError:  # it can be read only: somebody else's run, or a disk that takes no writing
        return folder.Folder(path)


def _verdict(opened: folder.Folder, named: Mapping[str, str | None] | None) -> Verification:
    if not (opened.checkpoint / PAGE).exists():
        if opened.result.exists():
            raise HatrackError(
                f"{str(opened.path)!r} is finished, but its checkpoint is gone: there is nothing to verify it by."
            )
        raise _unfinished(opened)
    files = _Files(opened)
    try:
        shape = input_shape(opened.checkpoint)
        if shape is None:
            raise _unfinished(opened)
        spec = read(opened.spec, anywhere=True, named=named)
        verdict = verify(opened.checkpoint, new_net(spec, shape), spec.device)
    except Exception as error:  # what was edited may be good for anything
        if not files.tampered:
            raise
        verdict = Verification((), (f"Nothing else can be compared: {one_line(error)}",))
    if not (verdict.tasks or verdict.tampered or files.tampered):
        raise _unfinished(opened)
    return replace(
        verdict,
        tampered=(*files.tampered, *verdict.tampered),
        missing=tuple(files.missing),
        notes=(*verdict.notes, *files.notes),
    )


def _unfinished(opened: folder.Folder) -> HatrackError:
    return HatrackError(f"{str(opened.path)!r} has finished no task yet; go on with it: hatrack resume {opened.path}")


class _Files:
    """What is wrong with a run's files besides its checkpoint."""

    def __init__(self, opened: folder.Folder) -> None:
        self.tampered: list[str] = []
        self.missing: list[str] = []
        self.notes: list[str] = []
        known, intact = of_run(opened.checkpoint)
        if not intact:  # which is found out again, and said, by who reads the learner
            self.notes.append(f"What {PAGE} says of the run's other files cannot be relied on: they are not compared.")
            return
        if known is None:
            self.notes.append(NOT_SEALED)
            return
        self._same(opened.spec, known[opened.spec.name])
        last = self._metrics(opened.metrics, known[opened.metrics.name])
        same = [opened.spec.name, f"{opened.metrics.name} ({known[opened.metrics.name]['lines']} lines)"]
        if opened.result.exists():
            same += self._result(opened, last)
        exports = opened.path / EXPORTS
        if exports.exists() and not intact_text(exports.read_bytes()):
            self.tampered.append(
                f"{EXPORTS} was changed after it was written (its SHA-256 differs from the one in it)."
            )
        if not (self.tampered or self.missing):
            self.notes.append(f"Files that are as they were written: {', '.join(same)}.")

    def _same(self, path: Path, expected: str) -> None:
        if not path.exists():
            self.missing.append(f"{path.name} is missing.")
        elif digest(path.read_bytes()) != expected:
            self.tampered.append(f"{path.name} was changed after it was written (its SHA-256 is another one).")

    def _metrics(self, path: Path, covered: dict[str, Any]) -> str | None:
        """Return the digest of the last line."""
        if not path.exists():
            self.missing.append(f"{path.name} is missing.")
            return None
        try:
            lines, _ = records.read(path, covered)
        except HatrackError as error:
            self.tampered.append(str(error))
            return None
        return lines[-1].digest

    def _result(self, opened: folder.Folder, last: str | None) -> list[str]:
        try:
            text = opened.result.read_text(encoding="utf-8")
            refuse_edited(opened.result, text)
            files = json.loads(text)["files"]
        except (HatrackError, ValueError, KeyError, TypeError) as error:
            said = str(error) if isinstance(error, HatrackError) else f"is not what was written ({one_line(error)})."
            self.tampered.append(said if opened.result.name in said else f"{opened.result.name} {said}")
            return []
        if last is not None and files[opened.metrics.name] != last:
            self.tampered.append(f"{opened.result.name} does not belong to {opened.metrics.name}: one was changed.")
        if files[opened.masks.name] is None:
            return [opened.result.name]
        self._same(opened.masks, files[opened.masks.name])
        return [opened.result.name, opened.masks.name]
