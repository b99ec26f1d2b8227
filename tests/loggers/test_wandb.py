"""Runs of W&B's, offline, read from the files that `wandb sync` would send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from hatrack.loggers import WandB

from .two_tasks import NAMES, SETTINGS, Points, expected, learn

HEADER, BLOCK = 7, 32768


def records(file: Path) -> Iterator[bytes]:
    """Yield what stands in a .wandb file: LevelDB's log format behind a header of seven bytes."""
    raw, at, record = file.read_bytes(), HEADER, b""
    while at < len(raw):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        size, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]  # behind a checksum of four bytes
        record += raw[at + HEADER : at + HEADER + size]
        at += HEADER + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


class Sent:
    """What `wandb sync` would send of a folder."""

    def __init__(self, folder: Path, kind: Any) -> None:
        self.points: Points = {}
        self.config: dict[str, Any] = {}
        self.runs: set[tuple[str, str, str, str]] = set()
        for part in sorted(folder.glob("offline-run-*")):
            for file in part.glob("*.wandb"):
                for raw in records(file):
                    self._read(kind.FromString(raw))

    def _read(self, record: Any) -> None:
        which = record.WhichOneof("record_type")
        if which == "run":
            run = record.run
            self.runs.add((run.run_id, run.project, run.display_name, run.host))
        changes = record.run.config.update if which == "run" else record.config.update
        for item in changes:
            self.config[item.key or item.nested_key[0]] = json.loads(item.value_json)
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if not name.startswith("_"):
                self.points.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))


def test_two_processes_write_one_run_and_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    pytest.importorskip("wandb")
    kind = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    wanted = expected(learn(tmp_path, WandB))
    until = monotonic() + 60
    while (sent := Sent(tmp_path / "log" / "wandb", kind)).points != wanted and monotonic() < until:
        sleep(0.2)  # a process of W&B's own writes the files
    assert sent.points == wanted
    assert sent.runs == {((tmp_path / "log" / "wandb.id").read_text(), "hatrack", "log", "-")}
    assert {name: sent.config[name] for name in (SETTINGS | NAMES)} == SETTINGS | NAMES
