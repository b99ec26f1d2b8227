"""Carrying a run out: the order of things, and going on after a stop, for every method."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hatrack.errors import HatrackError
from hatrack.learn.fit import Epoch
from hatrack.methods import METHODS
from hatrack.runs import folder
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.runs.runner import execute, finished
from hatrack.runs.setup import prepare
from hatrack.runs.spec import Spec, read, resolve
from hatrack.runs.verify import verify_run
from sealing import edited


class Stop(Exception):
    """What a test interrupts a run with."""


class Watcher:
    """A callback that notes what it is told, and stops the run at a given (task, epoch)."""

    def __init__(self, stop: tuple[int, int] | None = None) -> None:
        self.told: list[Any] = []
        self._stop = stop

    def on_start(self, plan: RunPlan) -> None:
        self.told.append(plan)

    def on_epoch(self, epoch: Epoch) -> None:
        self.told.append((epoch.task, epoch.epoch))
        if (epoch.task, epoch.epoch) == self._stop:
            raise Stop

    def on_task(self, result: TaskResult) -> None:
        self.told.append(result)


def small(method: str = "hat", **given: Any) -> Spec:
    return resolve({"method": method, "epochs": 2, "device": "cpu", **given}, [("widths", [12, 8])])


def carry_out(spec: Spec, path: Path, watcher: Watcher) -> dict[str, Any]:
    with folder.create(spec.toml(), path, "") as made:
        return execute(prepare(spec), made, watcher)


def go_on(path: Path, watcher: Watcher) -> dict[str, Any]:
    with folder.open_run(path) as opened:
        return execute(prepare(read(opened.spec), opened.checkpoint), opened, watcher)


def unsealed(path: Path) -> None:
    """Take the digests out of a run that has not finished, as version 0.1 wrote none."""
    edited(path / "checkpoint" / "learner.json", lambda page: page.pop("run", None))
    metrics = path / "metrics.jsonl"
    if metrics.exists():
        metrics.write_text(re.sub(', "sha256": "[0-9a-f]*"', "", metrics.read_text()))


def outcome(path: Path) -> list[str]:
    texts = [(path / name).read_text() for name in ("result.json", "metrics.jsonl")]
    times = r'"(seconds|memory)": [0-9.e-]+|"(sha256|metrics.jsonl)": "[0-9a-f]{64}"'  # and the digests of them
    return [re.sub(times, "", text) for text in texts]


def test_a_callback_hears_everything_in_order(tmp_path: Path) -> None:
    watcher = Watcher()
    result = carry_out(small(), tmp_path / "a", watcher)
    plan, *rest = watcher.told
    assert isinstance(plan, RunPlan)
    assert (plan.finished, plan.resumed, plan.epochs, plan.path) == (0, False, 2, tmp_path / "a")
    assert list(plan.work) == [task["train"] for task in result["tasks"]]
    for task in range(5):
        first, second, done = rest[3 * task : 3 * task + 3]
        assert (first, second) == ((task, 1), (task, 2))
        assert isinstance(done, TaskResult)
        assert list(done.accuracy) == result["accuracy"][task]
        assert done.capacity == result["capacity"][task]["total"]
        assert (done.task, done.epochs) == (task, 2)
    assert json.loads((tmp_path / "a" / "result.json").read_text()) == result


@pytest.mark.parametrize("method", sorted(name for name, method in METHODS.items() if method.trains))
def test_every_method_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("hatrack.runs.runner.write_report", lambda path: None)  # slow, and not the point here
    carry_out(small(method), tmp_path / "whole", Watcher())
    for stop in ((0, 1), (2, 1), (4, 2)):
        path = tmp_path / f"cut{stop[0]}"
        with pytest.raises(Stop):
            carry_out(small(method), path, Watcher(stop))
        watcher = Watcher()
        go_on(path, watcher)
        assert (watcher.told[0].finished, watcher.told[0].resumed) == (stop[0], True)
        assert outcome(path) == outcome(tmp_path / "whole")


def test_work_of_a_method_that_needs_old_data_grows(tmp_path: Path) -> None:
    watcher = Watcher()
    result = carry_out(small("joint"), tmp_path / "a", watcher)
    sizes = [task["train"] for task in result["tasks"]]
    assert list(watcher.told[0].work) == [sum(sizes[: t + 1]) for t in range(5)]


def test_a_stop_before_the_first_checkpoint_starts_afresh(tmp_path: Path) -> None:
    spec = small()
    carry_out(spec, tmp_path / "whole", Watcher())
    with folder.create(spec.toml(), tmp_path / "cut", ""):
        (tmp_path / "cut" / "checkpoint").mkdir()
    go_on(tmp_path / "cut", Watcher())
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_a_lost_result_or_report_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    carry_out(small(), path, Watcher())
    before = (path / "result.json").read_bytes()
    (path / "result.json").unlink()
    go_on(path, Watcher())
    assert (path / "result.json").read_bytes() == before
    (path / "report.html").unlink()
    with folder.open_run(path) as opened:
        assert finished(opened) == json.loads(before)
    assert (path / "report.html").exists()


@pytest.mark.parametrize("method", ["one", "pnn", "finetune-copy"])
def test_methods_whose_tasks_share_no_weights_have_a_report_too(method: str, tmp_path: Path) -> None:
    result = carry_out(small(method), tmp_path / "a", Watcher())
    assert not result["capacity"]
    assert "has no capacity to show" in (tmp_path / "a" / "report.html").read_text()


@pytest.mark.parametrize("damaged", ["", "{}", "[]", '{"spec": 1'])
def test_a_damaged_result_is_one_line(damaged: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    carry_out(small(), path, Watcher())
    (path / "result.json").write_text(damaged)
    with folder.open_run(path) as opened, pytest.raises(HatrackError, match="remove it, and `hatrack resume"):
        finished(opened)


def test_seconds_add_up_over_resumes(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "a", Watcher((1, 2)))
    unsealed(tmp_path / "a")
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    slow = json.loads(lines[-1]) | {"seconds": 1000.0}
    (tmp_path / "a" / "metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(slow)]) + "\n")
    assert 1000 < go_on(tmp_path / "a", Watcher())["seconds"] < 1200


def test_a_spec_that_was_changed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "a", Watcher((0, 1)))
    file = tmp_path / "a" / "spec.toml"
    file.write_text(file.read_text().replace("epochs = 2", "epochs = 3"))
    with pytest.raises(HatrackError, match=r"spec\.toml was changed after the run had started \(epochs\)"):
        go_on(tmp_path / "a", Watcher())


def test_lost_records_are_noticed(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "a", Watcher((1, 1)))
    (tmp_path / "a" / "metrics.jsonl").unlink()
    with pytest.raises(HatrackError, match=r"metrics\.jsonl lacks lines that its checkpoint has: 0 of 5"):
        go_on(tmp_path / "a", Watcher())
    unsealed(tmp_path / "a")
    with pytest.raises(HatrackError, match="lacks finished tasks"):
        go_on(tmp_path / "a", Watcher())


def test_verify_needs_a_finished_task(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "a", Watcher((0, 1)))
    with pytest.raises(HatrackError, match="has finished no task yet; go on with it: hatrack resume"):
        verify_run(tmp_path / "a")


def test_verify_of_a_finished_run_without_its_checkpoint(tmp_path: Path) -> None:
    carry_out(small(), tmp_path / "a", Watcher())
    shutil.rmtree(tmp_path / "a" / "checkpoint")
    with pytest.raises(HatrackError, match="is finished, but its checkpoint is gone"):
        verify_run(tmp_path / "a")


def test_verify_of_a_run_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out(small(), tmp_path / "a", Watcher())

    def refused(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path / ".lock"))

    monkeypatch.setattr(folder, "lock", refused)
    assert verify_run(tmp_path / "a").ok


def test_verify_of_a_stopped_run_covers_what_is_finished(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        carry_out(small(), tmp_path / "a", Watcher((2, 1)))
    verdict = verify_run(tmp_path / "a")
    assert verdict.ok
    assert [proof.task for proof in verdict.tasks] == ["digits 0-1", "digits 2-3"]


def test_the_net_comes_from_the_seed_and_leaves_no_trace(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again, other = (prepare(small(seed=seed)).learner.model.net for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    weights = [next(iter(net.parameters())) for net in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
