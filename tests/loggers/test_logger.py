"""What every logger is told and writes, with one that keeps it in a list; and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import hatrack
from hatrack.errors import HatrackError
from hatrack.loggers import LOGGERS, Logger, required
from hatrack.loggers.logger import flat
from runs.test_runner import Stop, Watcher, carry_out, go_on, small

from .two_tasks import NAMES, SETTINGS, Points, expected, learn, net


class Kept(Logger):
    """Keeps what it writes by folder, as a tool's store would."""

    module = extra = "json"
    store: ClassVar[dict[Path, Kept]] = {}

    def open(self, step: int) -> None:
        known = self.store.get(self.folder)
        self.events: list[Any] = known.events if known is not None else []
        self.store[self.folder] = self
        self.events.append(("open", step))

    def settings(self, values: Mapping[str, Any]) -> None:
        self.events.append(("settings", dict(values)))

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self.events.append(("figures", step, dict(values)))

    def end(self, finished: bool) -> None:
        self.events.append(("end", finished))

    @property
    def points(self) -> Points:
        points: Points = {}
        for _, step, values in (event for event in self.events if event[0] == "figures"):
            for name, value in values.items():
                points.setdefault(name, []).append((step, value))
        return points


def test_a_learner_and_the_one_that_goes_on_write_one_run(tmp_path: Path) -> None:
    history = learn(tmp_path, Kept)
    kept = Kept.store[tmp_path / "log"]
    assert kept.points == expected(history)
    assert [event for event in kept.events if event[0] in ("open", "end")] == [
        *(("open", 1), ("end", True)),
        *(("open", 4), ("end", True)),
    ]
    first, second = (event[1] for event in kept.events if event[0] == "settings")
    assert {name: first[name] for name in SETTINGS} == SETTINGS
    assert "task 2" not in first
    assert second == first | NAMES


def test_settings_are_written_once_and_what_is_new_again(tmp_path: Path) -> None:
    tasks = hatrack.tasks("split-digits", seed=0)
    learner, logger = hatrack.Learner(net(), epochs=1, device="cpu"), Kept(tmp_path / "log")
    for task in tasks[:2]:
        learner.learn(task, callback=logger)
    settings = [event[1] for event in logger.events if event[0] == "settings"]
    assert settings[1:] == [{"task 2": "digits 2-3"}]


def test_a_task_that_fails_before_its_first_epoch_leaves_nothing(tmp_path: Path) -> None:
    learner, logger = hatrack.Learner(net(), epochs=1, device="cpu"), Kept(tmp_path / "log")
    bad = hatrack.Task("bad", train=(torch.rand(40, 1, 5, 5), torch.randint(2, (40,))))
    with pytest.raises(HatrackError, match="bad"):
        learner.learn(bad, callback=logger)
    assert not (tmp_path / "log").exists()


def test_a_run_tells_settings_figures_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.runs.runner.write_report", lambda path: None)

    class Both(Watcher):
        def __getattr__(self, name: str) -> Any:
            return getattr(self.logger, name)

        def __init__(self, path: Path, stop: tuple[int, int] | None = None) -> None:
            super().__init__(stop)
            self.logger = Kept(path)

        def on_start(self, plan: Any) -> None:
            self.logger.on_start(plan)

        def on_epoch(self, epoch: Any) -> None:
            self.logger.on_epoch(epoch)
            super().on_epoch(epoch)

        def on_task(self, result: Any) -> None:
            self.logger.on_task(result)

    result = carry_out(small(data="/somewhere"), tmp_path / "a", Both(tmp_path / "a"))
    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "cut", Both(tmp_path / "cut", (2, 1)))
    go_on(tmp_path / "cut", Both(tmp_path / "cut"))
    whole, cut = Kept.store[tmp_path / "a"], Kept.store[tmp_path / "cut"]
    assert cut.points == whole.points
    assert [step for step, _ in whole.points["epoch/train_loss"]] == list(range(1, 11))
    assert whole.points["score/task 1"] == [(2 * t + 2, row[0]) for t, row in enumerate(result["accuracy"])]
    assert [event for event in cut.events if event[0] in ("open", "end")] == [
        *(("open", 1), ("end", False)),
        *(("open", 6), ("end", True)),
    ]
    (settings,) = (event[1] for event in whole.events if event[0] == "settings")
    assert settings["settings.c"] == 0.75
    assert settings["task 5"] == "digits 8-9"
    assert "data" not in settings


def test_scores_of_different_kinds_have_no_average(tmp_path: Path) -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    given = [("sign", (x[:, 0] > 0).long(), None), ("sum", x.sum(1), hatrack.targets.Regression())]
    tasks = [hatrack.Task(name, (x, y), (x, y), (x, y), target=target) for name, y, target in given]
    network = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU())
    learner, logger = hatrack.Learner(network, epochs=1, device="cpu"), Kept(tmp_path / "log")
    for task in tasks:
        learner.learn(task, callback=logger)
    points = Kept.store[tmp_path / "log"].points
    assert len(points["score/average"]) == 1
    assert len(points["score/task 1"]) == 2


def test_names_of_nested_settings() -> None:
    assert dict(flat({"a": 1, "b": {"c": {"d": 2}, "e": None}})) == {"a": 1, "b.c.d": 2, "b.e": None}


def test_what_cannot_be_had_is_refused_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HatrackError, match=r"unknown logger 'mlfow'; did you mean 'mlflow'\? Accepted: mlflow, tensor"):
        required(["mlfow"])
    for name, kind in LOGGERS.items():
        monkeypatch.setitem(sys.modules, kind.module, None)
        line = rf"{kind.__name__} needs a package that is not installed: pip install 'hatrack\[{name}\]'"
        with pytest.raises(HatrackError, match=line):
            kind(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(HatrackError, match=r"Kept cannot make the folder .*file"):
        hatrack.Learner(net(), epochs=1, device="cpu").learn(
            hatrack.tasks("split-digits", seed=0)[0], callback=Kept(tmp_path / "file")
        )
