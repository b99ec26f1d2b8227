"""Several seeds side by side give the results they give alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hatrack import HatrackError, cli
from hatrack.runs.multi_seed import parse_seeds
from sealing import timeless


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-3", [0, 1, 2, 3]), ("5", [5]), ("0,3, 5-6", [0, 3, 5, 6]), ("7-7", [7])]
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "0,,2"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(HatrackError, match="--seeds takes numbers and ranges"):
        parse_seeds(text)


def test_a_seed_twice_is_refused() -> None:
    with pytest.raises(HatrackError, match="names seed 2 twice"):
        parse_seeds("0-3,2")


def outcome(path: Path) -> dict[str, Any]:
    return timeless(path / "result.json")


def test_runs_side_by_side_end_as_they_would_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "--epochs", "2", "--set", "widths=[20]"]
    assert cli.main([*words, "--seeds", "0,3", "--out", "both"]) == 0
    shown = capsys.readouterr().out
    assert "± " in shown
    assert "seed 3, digits 0-1" in shown
    assert cli.main([*words, "--seed", "3", "--out", "alone"]) == 0
    assert outcome(tmp_path / "both" / "s3") == outcome(tmp_path / "alone")
    assert outcome(tmp_path / "both" / "s0") != outcome(tmp_path / "alone")


def test_refused_runs_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "--set", "lr=0", "--seeds", "0,3", "--out", "both"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("stopped: the learning rate starts at 0") == 2
    assert "resume" not in shown
    assert list(tmp_path.iterdir()) == []


def test_seed_and_seeds_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--seed", "1", "--seeds", "0-1"]) == 2
    assert "--seed and --seeds were both given" in capsys.readouterr().err
