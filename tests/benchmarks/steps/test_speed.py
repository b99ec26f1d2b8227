"""The table of `hatrack bench`: which lines there are, and that they are made of what was measured."""

from __future__ import annotations

import pytest
import torch
from hatrack.bench.speed import Row, rows, speed_table

from hatrack import HatrackError
from hatrack.bench import growth, sides, speed
from hatrack.nets import build

CPU = torch.device("cpu")


def small() -> torch.nn.Module:
    return build("mlp", sides.SHAPE, widths=(8,))


def test_lines_of_the_table() -> None:
    listed = rows(("hat",), None)
    assert {row.members for row in listed} == {1, 2, 4, 8}
    assert {row.precision for row in listed} == {"tf32", "bf16"}
    assert all(row.plain in listed for row in listed if row.members in (1, 8))
    others = rows(("spg",), None)
    assert {(row.engine, row.members) for row in others if row.method == "spg"} == {
        ("eager", 1),
        ("graph", 1),
        ("compiled", 1),
        ("graph", 8),
        ("compiled", 8),
    }
    assert not any(row.method == "hat" for row in others)
    with pytest.raises(HatrackError, match="unknown method 'hut'; did you mean 'hat'"):
        rows(("hut",), None)


def test_the_table_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def case(row: Row) -> sides.Case:
        kind = speed.METHODS[row.method]
        return sides.Case(lambda: kind(lr=0.1), 0, row.engine, row.precision, small)

    monkeypatch.setattr(Row, "case", case)
    monkeypatch.setattr(speed, "published_step", lambda device: lambda: None)
    monkeypatch.setattr(speed, "floor_milliseconds", lambda device, precision: 0.5)
    text = speed_table(CPU, ("hat",), ("eager",), rounds=1, steps=2)
    lines = text.splitlines()
    assert [line.split()[:2] for line in lines if "seed" in line] == [["sgd", "eager"], ["hat", "eager"]]
    took, faster, slower, floor = (float(x) for x in lines[-2].split()[-4:])
    assert took > 0
    assert faster >= 0
    assert slower > 0
    assert floor == pytest.approx(took / 0.5, abs=0.06)


def test_growth_names_what_a_task_leaves_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "TASKS", (2, 3))
    monkeypatch.setattr(growth, "WIDTHS", (8,))
    monkeypatch.setattr(growth, "SIZES", (8, 16))
    monkeypatch.setattr(growth, "build", lambda name, shape, width=8, widths=(8,): build("mlp", shape, widths=(width,)))
    monkeypatch.setattr(sides.Case, "__init__", _with_small_net(sides.Case.__init__))
    text = growth.growth_table("cpu", rounds=1)
    assert "task 2" in text
    assert "task 3" in text
    assert "KiB a task" in text
    assert "MLP of 2 × 16" in text


def _with_small_net(init: object) -> object:
    def made(self: sides.Case, *args: object, **options: object) -> None:
        options.setdefault("net", small)
        init(self, *args, **options)  # type: ignore[operator]

    return made
