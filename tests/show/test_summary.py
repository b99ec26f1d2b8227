"""The screen at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hatrack.show.summary import summary


def result(tasks: int, name: str = "digits") -> dict[str, Any]:
    return {
        "tasks": [{"name": f"{name} {i}"} for i in range(tasks)],
        "accuracy": [[1.0 - i / 100 for i in range(t + 1)] for t in range(tasks)],
        "metrics": {"acc": 0.98765, "bwt": 0.0, "fwt": None, "forgetting": 0.0, "rho": None},
        "capacity": [{"total": 0.1 * (t + 1) / tasks, "layers": {"fc1": 0.5, "fc10": 0.25}} for t in range(tasks)],
        "parameters": 1234567,
        "seconds": 75.2,
        "device": "cpu",
    }


def test_every_figure_is_there(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("")
    lines = summary(result(3), tmp_path).splitlines()
    assert lines == [
        "Test accuracy after learning each task (row), on each task (column):",
        "                 1     2     3",
        "  1 digits 0 1.000",
        "  2 digits 1 1.000 0.990",
        "  3 digits 2 1.000 0.990 0.980",
        "",
        "average accuracy  0.9877",
        "forgetting        0.0000",
        "capacity used     10.0 %",
        "parameters        1,234,567",
        "time              1:15 for 3 tasks on cpu",
        "",
        "Capacity used by layer, after 3 tasks:",
        "  fc1    50.0 %  ███████████████···············",
        "  fc10   25.0 %  ████████······················",
        "",
        f"Files in {tmp_path}:",
        "  result.json        accuracy matrix, measures, capacity",
    ]


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("tasks", [1, 2, 10, 11, 20, 30])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_lost(tasks: int, width: int) -> None:
    text = summary(result(tasks, "a task with a name as long as they come"), Path("runs/x"), width)
    assert max(map(len, text.splitlines())) <= width
    matrix = text.split("\n\n")[0]
    assert matrix.count("1.000") == tasks  # the first column
    assert sum(cell.startswith(("0.", "1.")) for cell in matrix.split()) == tasks * (tasks + 1) // 2


def test_a_method_without_masks_has_no_capacity() -> None:
    given = result(2) | {"capacity": None}
    given["metrics"]["forgetting"] = None
    text = summary(given, Path("x"))
    assert "apacity" not in text
    assert "forgetting        -" in text
