"""The study's report as a person sees it, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser import look
from hatrack.studies.export import write

from .made_up import GRID, SINGLE, TEXT, outcome

pytestmark = pytest.mark.browser


POINTS = ["acc on split-digits", "rho on split-digits", "rho@2 on split-digits"]
OVER = [
    "Average accuracy over tasks on split-digits",
    "Forgetting ratio ρ over tasks on split-digits",
    "Accuracy on each task on split-digits",
]
MASKS = ["Capacity over training on split-digits", "hat on split-digits: Weight reuse between tasks"]


@pytest.mark.parametrize(
    ("text", "tasks", "plots"),
    [
        (TEXT, 5, [*POINTS, *OVER, *MASKS]),
        (GRID, 5, [POINTS[0], *OVER, "acc of hat on split-digits"]),
        (SINGLE, 1, [POINTS[0], "capacity on split-digits", "Compression"]),
    ],
    ids=["methods and seeds", "grid", "one task"],
)
def test_every_picture_is_there(browser: Browser, tmp_path: Path, text: str, tasks: int, plots: list[str]) -> None:
    write(outcome(tmp_path, text, tasks), tmp_path)
    seen = look(browser, tmp_path / "report.html")
    assert seen.complaints == []
    assert seen.plots == plots


def test_what_it_says(browser: Browser, tmp_path: Path) -> None:
    write(outcome(tmp_path, failed=(("ewc", 2),)), tmp_path)
    seen = look(browser, tmp_path / "report.html", width=400)
    assert seen.complaints == []
    for said in (
        "A study & its <figures>",
        "8 of 9 runs finished. 1 of 2 figures within the paper’s band, 1 above it.",
        "within ✓",
        "above ↑",
        "0.97 ± 0.01",
        "paper only",
        "it was <unlucky>.",
        "p, Wilcoxon",
        "3 MiB",
    ):
        assert said in seen.text


def test_a_study_of_which_nothing_is_finished(browser: Browser, tmp_path: Path) -> None:
    write(
        outcome(tmp_path, GRID, failed=tuple((f"hat c={c} s_max={s}", 0) for c in ("0.5", "1") for s in (100, 200))),
        tmp_path,
    )
    seen = look(browser, tmp_path / "report.html")
    assert seen.complaints == []
    assert "0 of 4 runs finished." in seen.text
