"""A study on a Ray cluster of two workers on this machine: the same results as here."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from hatrack.cli import main
from hatrack.errors import HatrackError
from hatrack.studies.ray_executor import _require_answer
from sealing import timeless

pytest.importorskip("ray")

TEXT = """
seeds = [0, 1]
benchmarks = ["split-digits"]
methods = ["sgd", "hat", "large"]
measures = ["rho"]
[shared]
epochs = 1
[method.hat]
widths = [8]
[method.sgd]
widths = [8]
[method.large]
use = "ewc"
net = "alexnet"
"""


def outcomes(folder: Path) -> dict[str, Any]:
    found = {}
    for file in sorted(folder.rglob("result.json")):
        found[file.parent.name] = timeless(file)
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own: files and sockets that it leaves to the collector
def test_same_results_on_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    for on in ("local", "ray"):
        home = tmp_path / on
        words = ["study", str(tmp_path / "small.toml"), "--on", on, "--workers", "2", "--device", "cpu"]
        assert main([*words, "--out", str(home / "small")]) == 1  # one method fails
        said = capsys.readouterr().out
        # ewc, joint and random on a network that the digits are too small for
        assert said.count("FAILED, alexnet takes square pictures of at least 20×20") == 6
    assert len(outcomes(tmp_path / "ray")) == 8  # sgd, hat, joint and random of their network
    assert outcomes(tmp_path / "ray") == outcomes(tmp_path / "local")


def test_an_address_is_for_ray_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "hat-mnist2", "--address", "10.0.0.1:6379"]) == 2
    assert "give --on ray with it" in capsys.readouterr().err
    assert main(["study", "hat-mnist2", "--on", "slurm"]) == 2
    assert "--on takes local or ray, got 'slurm'." in capsys.readouterr().err


@pytest.mark.parametrize(("given", "instead"), [("ray", "--on ray"), ("compiled", "--set engine=compiled")])
def test_the_option_that_was_called_engine_says_what_to_write(
    given: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "hat-mnist2", "--engine", given]) == 2
    assert capsys.readouterr().err == f"hatrack: study takes no --engine; write {instead}.\n"
    assert main(["study", "--help"]) == 0
    assert "--engine" not in capsys.readouterr().out
    assert main(["study", "hat-mnist2", "--enigne", given]) == 2
    assert "--engine" not in capsys.readouterr().err


def test_that_ray_does_not_start_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def init(**given: Any) -> None:
        raise Exception("The current node timed out.\nPerhaps it is busy.")

    monkeypatch.setattr("ray.init", init)
    (tmp_path / "small.toml").write_text(TEXT)
    assert main(["study", str(tmp_path / "small.toml"), "--on", "ray", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said == "hatrack: Ray did not start (The current node timed out.); the same command tries it again.\n"


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "127.0.0.1:none"])
def test_an_address_where_nobody_listens_is_named_at_once(address: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, so that nobody else can, and not listened at
        given = address.format(port=unused.getsockname()[1])
        with pytest.raises(HatrackError, match=f"no Ray cluster answers at '{given}'"):
            _require_answer(given)
    _require_answer(None)
    _require_answer("auto")
