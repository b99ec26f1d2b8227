"""What a run records of its masks beyond capacity: blocked parameters, and what SPG's cross-head importance adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import hatrack
from hatrack.methods.parts.importance import crossed_importance, own_importance
from hatrack.methods.spg import SPG
from hatrack.nets import build
from hatrack.report.read import read
from hatrack.runs.spec import Spec, resolve
from hatrack.runs.verify import verify_run

from .test_runner import Stop, Watcher, carry_out, go_on, outcome, small


@pytest.fixture(autouse=True)
def _no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.runs.runner.write_report", lambda path: None)


def test_what_hat_blocks_is_what_it_has_taken(tmp_path: Path) -> None:
    result = carry_out(small(), tmp_path / "a", Watcher())
    for blocked, taken in zip(result["blocked"], result["capacity"], strict=True):
        assert set(blocked["layers"]) == set(taken["layers"]) == {"fc1", "fc2"}
        # Of a layer with as many biases as units, weights are all but a few parameters.
        assert blocked["total"] == pytest.approx(taken["total"], abs=0.1)
    assert result["facts"] is None


def test_methods_without_masks_have_neither(tmp_path: Path) -> None:
    result = carry_out(small("sgd"), tmp_path / "a", Watcher())
    assert (result["blocked"], result["facts"]) == (None, None)


def test_cross_head_importance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F and G by plain counting over all entries, from the importances themselves."""
    expected: list[dict[str, float]] = []
    real = SPG.measured

    def measured(self: SPG, feed: Any) -> Any:
        before = {name: value.clone() for name, value in self.importance.items()}
        found = real(self, feed)
        self.model.net.eval()
        own = own_importance(self.model, self.task, self.shared(), feed)
        crossed = crossed_importance(self.model, self.task, self.shared(), feed)
        figures: dict[str, float] = {}
        for kind, held in (("each", own), ("total", before)) if crossed else ():
            assert crossed is not None
            gaps = torch.cat([(crossed[name].double() - held[name].double()).flatten() for name in own])
            figures[f"F-{kind}"] = int((gaps > 0).sum()) / len(gaps)
            figures[f"G-{kind}"] = float(gaps[gaps > 0].mean())
        expected.append(figures)
        return found

    monkeypatch.setattr(SPG, "measured", measured)
    result = carry_out(small("spg"), tmp_path / "a", Watcher())
    assert result["facts"] == [pytest.approx(figures) for figures in expected]
    assert result["facts"][0] == {}
    assert set(result["facts"][1]) == {"F-each", "G-each", "F-total", "G-total"}
    assert all(0 <= share["total"] < 0.5 for share in result["blocked"])


def early() -> Spec:
    return resolve({"method": "spg", "epochs": 3, "device": "cpu"}, [("widths", [12, 8]), ("importance_epoch", 1)])


def test_figures_taken_early_survive_a_stop(tmp_path: Path) -> None:
    carry_out(early(), tmp_path / "whole", Watcher())
    with pytest.raises(Stop):
        carry_out(early(), tmp_path / "cut", Watcher((2, 2)))
    go_on(tmp_path / "cut", Watcher())
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_histograms_of_significance_are_in_the_result(tmp_path: Path) -> None:
    result = carry_out(small("fisher-mask"), tmp_path / "whole", Watcher())
    assert [set(found) for found in result["histograms"]] == [{"fc1", "fc2"}] * len(result["tasks"])
    for found in result["histograms"]:
        sizes = {layer: sum(spread["counts"]) + spread["zeros"] for layer, spread in found.items()}
        assert sizes == {"fc1": 65 * 12, "fc2": 13 * 8}
    with pytest.raises(Stop):
        carry_out(small("fisher-mask"), tmp_path / "cut", Watcher((2, 2)))
    go_on(tmp_path / "cut", Watcher())
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    assert carry_out(small("sgd"), tmp_path / "none", Watcher())["histograms"] is None


def test_masks_on_weights_lie_beside_the_run(tmp_path: Path) -> None:
    carry_out(small("pmask"), tmp_path / "a", Watcher())
    run, learner = (
        read(tmp_path / "a"),
        hatrack.load(tmp_path / "a" / "checkpoint", build("mlp", (64,), widths=[12, 8])),
    )
    assert run.weights is not None
    assert list(run.weights) == ["fc1.weight", "fc2.weight"]
    for task in range(len(run.names)):
        use = learner.method.use(task)
        assert use is not None
        for name, fields in run.weights.items():
            assert fields[task].tolist() == use[name].tolist()
    verdict = verify_run(tmp_path / "a")
    assert verdict.ok
    assert any("masks.safetensors" in note for note in verdict.notes)
    page = learner.report(tmp_path / "page")
    assert (page.parent / "masks.safetensors").read_bytes() == (tmp_path / "a" / "masks.safetensors").read_bytes()
