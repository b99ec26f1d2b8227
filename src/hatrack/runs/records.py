"""metrics.jsonl: the spec, then one line an epoch and one a finished task, in an order that survives kills.

Every line has a position: (task, epoch), a task's own line coming after all its epochs. Writing a line first
cuts off whatever stands at that position or later. A line is written, and on the disk, before the checkpoint that
covers it (`sync`), so a killed process leaves at most lines that its checkpoint knows nothing of; the resumed run
arrives at the same position and cuts them off.

Every line ends with a digest of itself and of the line before it (see hatrack.seal), and the checkpoint notes the last
one that it covers: a line that is changed, put in or taken out later is noticed. Version 0.1 wrote none of it.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from hatrack import atomic, seal
from hatrack.errors import Edited, HatrackError
from hatrack.report.read import Capacity, Count, Histogram, Number, Record

Position = tuple[int, float]
PUT_BACK = "put the file back as it was, or start the run again"
MACHINE = {"device", "engine"}  # where and how a run goes on changes no more than last bits


class _Spec(Record):
    event: Literal["spec"]
    spec: dict[str, Any]
    seconds: Number


class _Epoch(Record):
    event: Literal["epoch"]
    task: Count
    epoch: Count
    seconds: Number


class _Task(Record):
    event: Literal["task"]
    task: Count
    name: str
    accuracy: list[Number | None]
    blocked: Capacity | None = None
    facts: dict[str, Number | None] | None = None
    histograms: dict[str, Histogram] | None = None
    memory: Count = 0
    seconds: Number


_Line = Annotated[_Spec | _Epoch | _Task, Field(discriminator="event")]
_LINE: TypeAdapter[_Spec | _Epoch | _Task] = TypeAdapter(_Line)


def _position(fields: Mapping[str, Any]) -> Position:
    if fields["event"] == "spec":
        return (-1, 0)
    return (fields["task"], fields["epoch"] if fields["event"] == "epoch" else math.inf)


class Line(NamedTuple):
    """A line, its position, where it starts in the file, and the digest of all up to it."""

    position: Position
    start: int
    fields: dict[str, Any]
    digest: str


class Records:
    """The lines of one metrics.jsonl, in memory and on disk; `covered`: what a checkpoint noted of them (`mark`)."""

    def __init__(self, path: Path, covered: Mapping[str, Any] | None = None) -> None:
        self._path = path
        self._lines, whole = read(path, covered)
        self._file = open(path, "ab")  # noqa: SIM115  held open for the whole run
        self._file.seek(self._file.truncate(whole))

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def seconds(self) -> float:
        """How long the run had taken at the last line."""
        return float(self._lines[-1].fields["seconds"]) if self._lines else 0.0

    def start(self, spec: Mapping[str, Any]) -> None:
        """Write the spec as the first line; where one stands already, it must say the same but for the machine."""
        if not self._lines:
            self._write({"event": "spec", "spec": dict(spec), "seconds": 0.0})
        recorded = self._lines[0].fields.get("spec") or {}
        changed = sorted(key for key in (spec.keys() | recorded) - MACHINE if recorded.get(key) != spec.get(key))
        if changed:
            raise HatrackError(
                f"spec.toml was changed after the run had started ({', '.join(changed)}); put it back, or "
                f"start a new run with these settings."
            )

    def epoch(self, fields: Mapping[str, Any]) -> None:
        """Write the line of one epoch (counted from 1) of a task; the line begins with the two."""
        self._write({"event": "epoch", "task": fields["task"], "epoch": fields["epoch"], **fields})

    def task(self, task: int, fields: Mapping[str, Any]) -> None:
        """Write the line of a finished task."""
        self._write({"event": "task", "task": task, **fields})

    def tasks(self) -> list[dict[str, Any]]:
        """Return the lines of the finished tasks, in order."""
        return [line.fields for line in self._lines if line.position[1] == math.inf]

    def epochs(self, task: int) -> int:
        """Return how many epochs of `task` are on record."""
        return sum(line.position[0] == task and line.position[1] != math.inf for line in self._lines)

    def mark(self) -> dict[str, Any]:
        """Return what a checkpoint is to note of the lines so far."""
        return {"lines": len(self._lines), "digest": self._lines[-1].digest if self._lines else ""}

    def sync(self) -> None:
        """Wait until all lines are on the disk; raise where the file is gone, and with it the run's folder."""
        with atomic.naming(self._path):
            os.fsync(self._file.fileno())
            if os.fstat(self._file.fileno()).st_nlink == 0 or not self._path.exists():
                raise FileNotFoundError(
                    errno.ENOENT, "the run's folder was removed or moved, so the run ends here", str(self._path.parent)
                )

    def close(self) -> None:
        with suppress(OSError):  # what could not be written was said then
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        position = _position(line)
        while self._lines and self._lines[-1].position >= position:
            self._file.seek(self._file.truncate(self._lines.pop().start))
        start = self._file.tell()
        clean = {key: _finite(value) for key, value in line.items()}
        text = json.dumps({**clean, **seal.BLANK}, ensure_ascii=False, allow_nan=False) + "\n"
        raw = seal.sealed(text, self.mark()["digest"]).encode()
        with atomic.naming(self._path):
            self._file.write(raw)
            self._file.flush()
        self._lines.append(Line(position, start, clean, seal.borne(raw) or ""))


def read(path: Path, covered: Mapping[str, Any] | None = None) -> tuple[list[Line], int]:
    """Return the complete lines and where they end; a killed writer may have left half of one.

    Refuse them where they are not what was written, or lack what is `covered`.
    """
    lines: list[Line] = []
    start, finished, before, due = 0, 0, "", False
    for number, raw in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else [], start=1):
        if not raw.endswith(b"\n"):
            break
        try:
            checked, fields = _LINE.validate_json(raw), json.loads(raw)
        except ValueError:
            raise HatrackError(
                f"{path}, line {number} is not a record of a run: {_short(raw)!r}; start the run again."
            ) from None
        own = seal.borne(raw)
        due = due or own is not None
        if due and not seal.intact(raw, before):
            raise Edited(f"{path}, line {number} or the one before it was changed after it was written; {PUT_BACK}.")
        position, last = _position(fields), lines[-1].position if lines else (-2, 0)
        fits = not isinstance(checked, _Task) or len(checked.accuracy) == checked.task + 1
        if position <= last or position[0] not in (-1, finished) or not fits:
            raise HatrackError(f"{path}, line {number} does not follow from those above it; start the run again.")
        finished += isinstance(checked, _Task)
        fields.pop("sha256", None)
        before = own or seal.digest(raw, before)
        lines.append(Line(position, start, fields, before))
        start += len(raw)
    if covered is not None and covered["lines"]:
        if len(lines) < covered["lines"]:
            raise Edited(
                f"{path} lacks lines that its checkpoint has: {len(lines)} of {covered['lines']} are there; {PUT_BACK}."
            )
        if lines[covered["lines"] - 1].digest != covered["digest"]:
            raise Edited(f"{path} is not the one that its checkpoint belongs to; {PUT_BACK}.")
    return lines, start


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: a loss that blew up is recorded as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(raw: bytes) -> str:
    text = raw.decode(errors="replace").strip()
    return text if len(text) <= 60 else text[:57] + "..."
