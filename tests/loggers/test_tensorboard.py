"""Events for TensorBoard, read by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.loggers import TensorBoard

from .two_tasks import expected, learn

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_every_figure_stands_at_its_step(tmp_path: Path) -> None:
    history = learn(tmp_path, TensorBoard)
    events = accumulator.EventAccumulator(str(tmp_path / "log" / "tensorboard"))
    events.Reload()
    wanted = expected(history)
    assert sorted(events.Tags()["scalars"]) == sorted(wanted)
    for name, points in wanted.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(value)) for step, value in points]
    text = events.Tensors("settings/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert "| task 2 | digits 2-3 |" in text


def test_what_is_repeated_replaces_what_was_there(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        logger = TensorBoard(tmp_path)
        logger.open(3)
        logger.figures({"x": value}, 3)
        logger.end(True)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("x")] == [(3, 2.0)]
