"""The examples of docs/loops.md, as they stand there, with the real packages where they are installed."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import hatrack

PAGE = Path(__file__).parents[1] / "docs" / "loops.md"
NEEDS = {
    "Plain torch": "torch",
    "Lightning": "lightning",
    "transformers' Trainer": "transformers",
    "Accelerate": "accelerate",
}


def blocks(section: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", section, re.S)


def sections() -> dict[str, str]:
    first, *others = re.split(r"^## ", PAGE.read_text(), flags=re.M)
    return {"": first, **{other.partition("\n")[0]: other for other in others}}


def test_every_loop_is_tried() -> None:
    assert {name for name, text in sections().items() if name and blocks(text)} == NEEDS.keys()


@pytest.mark.parametrize("name", NEEDS)
def test_a_loop_of_the_docs_keeps_old_tasks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    (common,), (example,) = blocks(sections()[""]), blocks(sections()[name])
    told: dict[str, Any] = {}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages' own
        exec(common, told)
        exec(example, told)
    hats = told["hats"]
    assert hats.finished == 2
    assert hats.verify().ok
    for number, task in enumerate(hatrack.tasks("split-digits", seed=0)[:2]):
        assert task.test is not None
        x, y = task.test.on(torch.device("cpu"))
        assert float((hats.wear(number)(x).argmax(1) == y).float().mean()) > 0.9
