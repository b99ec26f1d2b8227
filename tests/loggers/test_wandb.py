"""Runs of W&B's, offline, read from the files that `wandb sync` would send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
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


def test_two_processes_write_one_run_and_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    pytest.importorskip("wandb")
    kind = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    history = learn(tmp_path, WandB)
    points: Points = {}
    config: dict[str, Any] = {}
    ids = set()
    folders = sorted((tmp_path / "log" / "wandb").glob("offline-run-*"))
    for file in (next(folder.glob("*.wandb")) for folder in folders):
        for raw in records(file):
            record = kind.FromString(raw)
            if record.WhichOneof("record_type") == "run":
                ids.add((record.run.run_id, record.run.project, record.run.display_name))
                assert record.run.host == "-"
            changes = {"run": record.run.config, "config": record.config}.get(record.WhichOneof("record_type"))
            for item in changes.update if changes is not None else ():
                config[item.key or item.nested_key[0]] = json.loads(item.value_json)
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    points.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
    assert points == expected(history)
    assert ids == {((tmp_path / "log" / "wandb.id").read_text(), "hatrack", "log")}
    assert {name: config[name] for name in (SETTINGS | NAMES)} == SETTINGS | NAMES
