"""What the study's report says in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hatrack.studies.page import page

from .made_up import GRID, LOSS, SINGLE, TEXT, outcome


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


def test_a_grid_without_a_picture_says_why(tmp_path: Path) -> None:
    words = GRID.replace("s_max = [100, 200]", "hard = [true, false]")
    assert "it has settings that are no numbers (hard)." in page(outcome(tmp_path / "words", words))
    three = GRID.replace("c = [0.5, 1.0]", "c = [0.5, 1.0]\nlr = [0.05, 0.1]")
    assert "it has 3 settings, more than two." in page(outcome(tmp_path / "three", three))
    failed = tuple((f"hat c={c} s_max={s}", 0) for c in ("0.5", "1") for s in (100, 200))
    assert "Average accuracy on split-digits is drawn over" in page(outcome(tmp_path / "failed", GRID, failed=failed))
    whole = page(outcome(tmp_path / "some", GRID, failed=failed[:1]))
    assert "Without a value: c = 0.5, s_max = 100." in whole


def test_a_measure_over_one_setting_is_drawn_as_it_is_after_several_tasks(tmp_path: Path) -> None:
    text = GRID.replace("s_max = [100, 200]", "").replace('["acc"]', '["acc1@2", "acc1@3", "acc"]')
    found = page(outcome(tmp_path, text))
    assert 'aria-label="acc1@2, acc1@3 of hat on split-digits"' in found
    assert "after task 3</text>" in found


def test_the_points_of_a_large_grid_are_said_to_be_left_out(tmp_path: Path) -> None:
    text = GRID.replace("[100, 200]", str([100 + s for s in range(11)]))
    assert "Left out: 22 points of a grid, see Over the settings." in page(outcome(tmp_path, text))
    assert "Left out" not in page(outcome(tmp_path / "small", GRID))


def test_forward_transfer_is_drawn_where_it_is_measured(tmp_path: Path) -> None:
    text = TEXT.replace('"rho@2"', '"fwt"')
    assert "No run has a forward transfer on two tasks or more" in page(outcome(tmp_path / "without", text))
    made = outcome(tmp_path / "with", text)
    findings = [replace(finding, references={"one": [0.5] * 5}) for finding in made.findings]
    assert 'aria-label="Forward transfer to each task on split-digits"' in page(replace(made, findings=findings))
    assert "orward transfer" not in page(outcome(tmp_path / "none"))
