"""What docs/inputs.md shows is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hatrack
from hatrack.data.augment import BUILT_IN
from hatrack.methods import METHODS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "inputs.md").read_text()


def test_the_page_runs() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/inputs.md", "exec"), names)
    learner = hatrack.Learner(hatrack.nets.build("mlp", (1, 8, 8), widths=(8,)), epochs=1, device="cpu")
    for task in (names["digits"], names["darker"], names["task"]):
        learner.learn(task)
    assert learner.verify().ok


def test_the_page_names_all_there_is() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(BUILT_IN)
    keep = [name for name, method in METHODS.items() if method.needs_old_data or method.keeps_samples]
    assert sorted(re.findall(r"`([\w+-]+)`", PAGE.rsplit("methods that keep samples", 1)[1])) == sorted(keep)
