"""augment, an option of every benchmark: from the command line's words to spec.toml, the tasks and the list."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import hatrack
from hatrack import HatrackError
from hatrack.data.benchmarks import BENCHMARKS
from hatrack.learn.fit import Epoch
from hatrack.runs.folder import create, open_run
from hatrack.runs.runner import execute
from hatrack.runs.setup import prepare
from hatrack.runs.spec import Spec, read, resolve
from hatrack.runs.values import parse_all
from hatrack.show.lists import text


def spec_of(*words: str, method: str = "sgd") -> Spec:
    run = {"method": method, "device": "cpu", "epochs": 2}
    return resolve(run, [("widths", [12, 8]), *parse_all(words).items()])


def test_an_augmentation_is_a_setting_of_every_benchmark() -> None:
    assert spec_of() == spec_of("augment=none")
    assert "augment" not in spec_of().toml()
    spec = spec_of("augment=crop,flip")
    assert spec.benchmark_options == {"augment": "crop,flip"}
    assert spec_of("benchmark.augment=crop,flip") == spec
    with pytest.raises(HatrackError, match="augment must be a valid string, got 3"):
        spec_of("augment=3")


class Stopping:
    def on_epoch(self, epoch: Epoch) -> None:
        if (epoch.task, epoch.epoch) == (1, 1):
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["hat", "replay-all"])
def test_a_run_that_is_gone_on_with_draws_the_same(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hatrack.runs.runner.write_report", lambda path: None)  # slow, and not the point here
    spec = spec_of("augment=crop,flip,mixup", method=method)
    with create(spec.toml(), tmp_path / "whole", "") as made:
        whole = execute(prepare(spec), made)
    assert 'augment = "crop,flip,mixup"' in made.spec.read_text()
    assert read(made.spec) == spec
    with create(spec.toml(), tmp_path / "cut", "") as cut, pytest.raises(KeyboardInterrupt):
        execute(prepare(spec), cut, Stopping())
    with open_run(tmp_path / "cut") as again:
        result = execute(prepare(read(again.spec), again.checkpoint), again)
    assert result["accuracy"] == whole["accuracy"]
    assert result["capacity"] == whole["capacity"]


def test_the_list_names_it() -> None:
    entries = text("benchmarks", 200).count("augment=none")
    assert entries == len(BENCHMARKS)


def test_all_tasks_of_a_benchmark_are_augmented_and_no_other_sample_is() -> None:
    plain, augmented = hatrack.tasks("split-digits"), hatrack.tasks("split-digits", augment="crop")
    for a, b in zip(plain, augmented, strict=True):
        assert str(b.augment) == b.about["augment"] == "crop"
        assert a.augment is None
        assert {**a.about, "augment": "crop"} == b.about
        x, _ = a.train.on(torch.device("cpu"))
        assert torch.equal(x, b.train.on(torch.device("cpu"))[0])


def test_a_benchmark_of_no_pictures_refuses_built_in_ones(tmp_path: Path) -> None:
    file = tmp_path / "table.py"
    file.write_text(
        "import torch, hatrack\n"
        "def rows(seed: int):\n"
        "    return [hatrack.Task('table', (torch.rand(9, 4), torch.arange(9) % 2))]\n"
    )
    with pytest.raises(HatrackError, match=r"task 'table': augment flip is for pictures .* give a function"):
        hatrack.tasks(f"{file}:rows", augment="flip")
