"""Several seeds side by side give the results they give alone."""

from __future__ import annotations

import json
import os
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


SPY = """
import os
from dataclasses import dataclass
from typing import ClassVar
import torch
from hatrack.methods.sgd import SGD

@dataclass
class Spy(SGD):
    name: ClassVar[str] = "spy"

    def facts(self):
        return {"process": os.getpid(), "threads": torch.get_num_threads()}
"""


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
    for file in ("metrics.jsonl", "report.html", "masks.safetensors", "spec.toml"):
        assert (tmp_path / "both" / "s0" / file).is_file()
    assert cli.main(["verify", "both/s0"]) == 0
    assert outcome(tmp_path / "both" / "s0") != outcome(tmp_path / "alone")


def test_on_a_cpu_a_run_has_a_process_of_its_own_with_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spy.py").write_text(SPY)
    words = ["run", "--method", "spy.py:Spy", "--epochs", "1", "--set", "widths=[4]", "--out", "both"]
    assert cli.main([*words, "--seeds", "0,3", "--device", "cpu"]) == 0
    found = [json.loads((tmp_path / "both" / f"s{seed}" / "result.json").read_text())["facts"][0] for seed in (0, 3)]
    assert [each["threads"] for each in found] == [1, 1]
    assert os.getpid() not in {each["process"] for each in found}


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
