"""Each tool's own calls, with a stand-in where the tool is not installed: no figure lost, nothing sent anywhere."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hatrack.loggers import LOGGERS

from .two_tasks import NAMES, SETTINGS, Points, expected, learn


class Seen:
    """What a stand-in was told."""

    def __init__(self) -> None:
        self.points: Points = {}
        self.settings: dict[str, Any] = {}
        self.runs: set[str | None] = set()
        self.ends: list[Any] = []

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self.points.setdefault(name, []).append((step, value))


def wandb(seen: Seen) -> dict[str, Any]:
    def init(*, id: str, mode: str, settings: dict[str, Any], **_: Any) -> Any:
        assert (mode, settings["console"], settings["disable_code"]) == ("offline", "off", True)
        seen.runs.add(id)
        config = SimpleNamespace(update=lambda values, allow_val_change: seen.settings.update(values))
        return SimpleNamespace(config=config, log=seen.log, finish=lambda exit_code: seen.ends.append(exit_code == 0))

    return {"init": init, "Settings": dict}


def trackio(seen: Seen) -> dict[str, Any]:
    class Run:
        def __init__(self, *, url: None, client: None, run_id: str, config: dict[str, Any], **_: Any) -> None:
            assert (url, client, self._get_username()) == (None, None, None)
            seen.runs.add(run_id)
            seen.settings.update(config)
            self.log = seen.log

        def _get_username(self) -> str:
            return "what the Hub says"

        def finish(self) -> None:
            seen.ends.append(True)

    return {"Run": Run}


def mlflow(seen: Seen) -> dict[str, Any]:
    class Client:
        def __init__(self, where: str, registry_uri: str) -> None:
            assert where == registry_uri
            assert where.startswith("sqlite:///")

        def get_experiment_by_name(self, name: str) -> None:
            assert name == "hatrack"

        def create_experiment(self, name: str) -> str:
            return "1"

        def create_run(self, experiment: str, run_name: str) -> Any:
            return SimpleNamespace(info=SimpleNamespace(run_id=f"{experiment}/{run_name}"))

        def get_run(self, run: str) -> Any:
            seen.runs.add(run)
            return SimpleNamespace(data=SimpleNamespace(params=seen.settings))

        def log_param(self, run: str, name: str, value: str) -> None:
            assert name not in seen.settings
            seen.settings[name] = value

        def log_batch(self, run: str, metrics: list[Any]) -> None:
            for name, value, _, step in metrics:
                seen.log({name: value}, step)

        def set_terminated(self, run: str, status: str) -> None:
            seen.ends += [True] * (status == "FINISHED")

    entities = SimpleNamespace(Metric=lambda *fields: fields)
    return {"MlflowClient": Client, "MlflowException": RuntimeError, "entities": entities}


@pytest.mark.parametrize("tool", [wandb, trackio, mlflow])
def test_every_figure_and_one_run(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    kind, seen, module = LOGGERS[tool.__name__], Seen(), ModuleType(tool.__name__)
    vars(module).update(tool(seen))
    monkeypatch.setitem(sys.modules, tool.__name__, module)
    wanted = expected(learn(tmp_path, kind))
    assert seen.points == wanted
    assert seen.runs == {kind(tmp_path / "log").identity}
    assert seen.ends == [True, True]
    known = {name: str(seen.settings[name]) for name in (SETTINGS | NAMES)}
    assert known == {name: str(value) for name, value in (SETTINGS | NAMES).items()}
