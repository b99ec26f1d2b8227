"""Measures that need other runs: completed from runs of the same tasks, refused from others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.runs.references import complete


def run(folder: Path, method: str, accuracy: list[list[float]], **spec: Any) -> Path:
    path = folder / f"{method}-{len(list(folder.iterdir()))}"
    path.mkdir()
    whole = {"method": method, "benchmark": "b", "benchmark_options": {}, "net": "mlp", "net_options": {}, "seed": 0}
    tasks = [{"name": str(t), "classes": 2, "test": 10} for t in range(len(accuracy))]
    about = {"schema": 1, "hatrack": "0.1.0", "spec": whole | spec}
    result = about | {"tasks": tasks, "accuracy": accuracy, "metrics": {}}
    (path / "result.json").write_text(json.dumps(result))
    (path / "spec.toml").write_text("")
    return path


def test_measures_are_completed_and_stored(tmp_path: Path) -> None:
    own = run(tmp_path, "hat", [[0.9], [0.8, 0.7]])
    others = [
        run(tmp_path, "joint", [[0.9], [0.9, 0.9]]),
        run(tmp_path, "random", [[0.5], [0.4, 0.5]]),
        run(tmp_path, "one", [[0.9], [0.9, 0.6]]),
        run(tmp_path, "sgd", [[0.9], [0.3, 0.6]]),
    ]
    complete(own, others)
    metrics = json.loads((own / "result.json").read_text())["metrics"]
    assert metrics["missing"] == {}
    assert metrics["rho"] == pytest.approx(((0.8 - 0.5) / (0.9 - 0.5) - 1 + (0.7 - 0.5) / (0.9 - 0.5) - 1) / 2)
    assert metrics["fwt"] == pytest.approx(((0.9 - 0.9) + (0.7 - 0.6)) / 2)
    assert metrics["ncl"] == pytest.approx((0.8 + 0.7) / 2 - (0.3 + 0.6) / 2)


def test_what_other_references_gave_before_is_kept(tmp_path: Path) -> None:
    own = run(tmp_path, "hat", [[0.9], [0.8, 0.7]])
    complete(own, [run(tmp_path, "one", [[0.9], [0.9, 0.6]])])
    complete(own, [run(tmp_path, "joint", [[0.9], [0.9, 0.9]]), run(tmp_path, "random", [[0.5], [0.4, 0.5]])])
    metrics = json.loads((own / "result.json").read_text())["metrics"]
    assert metrics["fwt"] == pytest.approx(0.05)
    assert metrics["rho"] == pytest.approx(-0.375)
    assert list(metrics["missing"]) == ["ncl"]


def test_columns_and_modules_may_have_a_size_and_a_start_of_their_own(tmp_path: Path) -> None:
    own = run(tmp_path, "pnn", [[0.9]], net_options={"width": 9, "part": 0.1, "init": "torch"})
    found = complete(own, [run(tmp_path, "one", [[0.8]], net_options={"width": 9})])
    assert found["metrics"]["fwt"] == pytest.approx(0.1)
    with pytest.raises(HatrackError, match="its net_options is"):
        complete(own, [run(tmp_path, "one", [[0.8]], net_options={"width": 8})])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    own = run(tmp_path, "hat", [[0.9], [0.8, 0.7]])
    found = complete(own, [run(tmp_path, "random", [[0.5], [0.4, 0.5]])])
    assert found["metrics"]["missing"]["rho"] == ["joint"]
    assert found["metrics"]["rho"] is None


@pytest.mark.parametrize(("change", "says"), [({"seed": 1}, "its seed is 1"), ({"net": "x"}, "its net is 'x'")])
def test_runs_of_other_tasks_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    own = run(tmp_path, "hat", [[0.9]])
    with pytest.raises(HatrackError, match=says):
        complete(own, [run(tmp_path, "joint", [[0.9]], **change)])
    with pytest.raises(HatrackError, match="references are runs of"):
        complete(own, [run(tmp_path, "ewc", [[0.9]])])
