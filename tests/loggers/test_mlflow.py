"""A run of MLflow's, read by its client."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatrack.errors import HatrackError
from hatrack.loggers import MLflow

from .two_tasks import NAMES, SETTINGS, expected, learn


def test_one_run_with_every_figure_at_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    mlflow = pytest.importorskip("mlflow")
    history = learn(tmp_path, MLflow)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'log' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("hatrack")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("log", "FINISHED")
    wanted = expected(history)
    assert sorted(run.data.metrics) == sorted(wanted)
    for name, points in wanted.items():
        found = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        assert sorted(found) == points
    assert {name: run.data.params[name] for name in (SETTINGS | NAMES)} == {
        name: str(value) for name, value in (SETTINGS | NAMES).items()
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "saved"]  # nothing where the process stands

    client.delete_run(run.info.run_id)
    (tmp_path / "log" / "mlflow.id").write_text("0" * 32)
    with pytest.raises(HatrackError, match=r"MLflow does not take the run of .*log.*not found"):
        MLflow(tmp_path / "log").open(1)
