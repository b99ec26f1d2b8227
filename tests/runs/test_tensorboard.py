"""Events for TensorBoard: what is written, and that a resumed run writes where the stopped one would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hatrack.runs.tensorboard import TensorBoard

from .test_runner import Stop, Watcher, carry_out, go_on, small

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


class Both(Watcher):
    """A watcher that stops the run, with events written before."""

    def __init__(self, stop: tuple[int, int] | None = None) -> None:
        super().__init__(stop)
        self.events = TensorBoard()

    def on_start(self, plan: Any) -> None:
        self.events.on_start(plan)
        super().on_start(plan)

    def on_epoch(self, epoch: Any) -> None:
        self.events.on_epoch(epoch)
        super().on_epoch(epoch)

    def on_task(self, result: Any) -> None:
        self.events.on_task(result)


def scalars(run: Path, tag: str) -> list[tuple[int, float]]:
    events = accumulator.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_every_epoch_and_every_accuracy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.runs.runner.write_report", lambda path: None)
    result = carry_out(small(), tmp_path / "a", Both())
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["event"] == "epoch"]
    for name in ("train_loss", "valid_accuracy", "capacity", "s"):
        found = scalars(tmp_path / "a", f"epoch/{name}")
        assert [step for step, _ in found] == list(range(1, 11))
        assert [value for _, value in found] == pytest.approx([line[name] for line in epochs])
    first = scalars(tmp_path / "a", "test accuracy/task 1")
    assert first == [(t + 1, pytest.approx(row[0])) for t, row in enumerate(result["accuracy"])]

    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "cut", Both((2, 1)))
    go_on(tmp_path / "cut", Both())
    assert scalars(tmp_path / "cut", "epoch/train_loss") == scalars(tmp_path / "a", "epoch/train_loss")
