"""What the study's report says in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hatrack.studies.page import page

from .made_up import LOSS, SINGLE, TEXT, outcome


def test_whose_memory_it_is(tmp_path: Path) -> None:
    assert "those of all runs side by side with it included" in page(outcome(tmp_path))


def test_figures_of_a_file_whose_runs_have_no_value(tmp_path: Path) -> None:
    nothing = tuple((method, seed) for method in LOSS for seed in range(3))
    found = page(outcome(tmp_path / "failed", failed=nothing))
    assert "no value of ours beside the figures" in found
    assert "the file gives no figures" not in found
    assert "the file gives no figures" in page(outcome(tmp_path / "without", SINGLE))
    without_bands = TEXT.replace("within = 0.02", 'within = "order"')
    assert "order and sign alone are compared" in page(outcome(tmp_path / "order", without_bands))


def test_runs_that_diverged_are_named(tmp_path: Path) -> None:
    made = outcome(tmp_path)
    assert "iverged" not in page(made)
    lost = {made.findings[0].run.path: "3 of 40 epochs", tmp_path / "references" / "joint-0": "1 of 9 epochs"}
    found = page(replace(made, diverged=lost))
    assert "Training diverged in 2 runs: see Runs." in found
    assert found.count("finished; training diverged in 3 of 40 epochs") == 1
    assert "joint-0" in found
    assert found.count("finished; training diverged in 1 of 9 epochs") == 1
