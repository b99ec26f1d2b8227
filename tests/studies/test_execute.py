"""A whole study, small and in this process: what it leaves behind, what is not done twice, what fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data.make import write_set
from hatrack.cli import main
from hatrack.errors import HatrackError
from hatrack.measure import reading, rho
from hatrack.runs.folder import lock
from hatrack.runs.setup import Setup
from hatrack.runs.spec import Spec
from hatrack.studies import job
from hatrack.studies.execute import Machine, Outcome, execute
from hatrack.studies.export import write
from hatrack.studies.file import Study, parse
from hatrack.studies.text import summary
from sealing import edited

from .serial import Serial, Watch

TEXT = """
title = "Small"
seeds = [0, 1]
benchmarks = ["split-digits"]
methods = ["hat", "sgd"]
measures = ["acc", "rho"]
[shared]
epochs = 1
widths = [8]
[paper.acc.split-digits]
hat = [0.5, 0.5]
"""
CPU = Machine("cpu")


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Note whose report is written instead of writing it, which is slow."""
    noted: list[Path] = []

    def write_report(path: Path) -> None:
        noted.append(path)
        (path / "report.html").touch()

    for place in ("runs.runner", "studies.findings"):
        monkeypatch.setattr(f"hatrack.{place}.write_report", write_report)
    return noted


def study(text: str = TEXT) -> Study:
    return parse(text, "small")


def carried(
    tmp_path: Path, text: str = TEXT, name: str = "small", machine: Machine = CPU
) -> tuple[Outcome, Serial, Watch]:
    executor, watch = Serial(), Watch()
    outcome = execute(study(text), tmp_path / name, tmp_path / "references", machine, executor, watch)
    return outcome, executor, watch


@pytest.mark.parametrize("name", ["spec.toml", "search.json"])
def test_the_folder_of_a_run_or_a_search_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / name).write_text("")
    with pytest.raises(HatrackError, match="holds a run or a search; choose another --out"):
        carried(tmp_path)
    assert [path.name for path in (tmp_path / "small").iterdir()] == [name]


@pytest.mark.parametrize("name", ["file", "file/x", "a/" * 1200])
def test_a_folder_that_cannot_be_made_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(HatrackError, match=r"cannot make the study folder .*; choose another --out"):
        execute(study(TEXT), Path(name), tmp_path / "references", CPU, Serial(), Watch())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_study_and_going_on_with_it(tmp_path: Path, drawn: list[Path]) -> None:
    outcome, executor, watch = carried(tmp_path)
    assert len(drawn) == len(set(drawn)) == 8  # references go first, so that no report waits for a measure
    assert (watch.todo, watch.finished, watch.notices) == (8, 0, [])  # hat, sgd, joint, random on two seeds
    assert all(reason is None for reason in watch.ended.values())
    assert outcome.reasons == {}
    assert sorted(p.name.rsplit("-", 1)[0] for p in (tmp_path / "references").iterdir()) == [
        f"split-digits-{method}-mlp-s{seed}" for method in ("joint", "random", "sgd") for seed in (0, 1)
    ]
    assert sorted(p.name.rsplit("-", 1)[0] for p in (tmp_path / "small" / "runs").iterdir()) == [
        "split-digits-hat-mlp-s0",
        "split-digits-hat-mlp-s1",
    ]
    assert (tmp_path / "small" / "study.toml").read_text() == TEXT
    # A reference goes first, and is what ρ is taken against.
    assert executor.given[0].startswith(("split-digits-joint", "split-digits-random"))
    for finding in outcome.findings:
        assert finding.result is not None
        against = {json.loads((p / "result.json").read_text())["spec"]["method"]: p for p in finding.run.against}
        matrices = {m: json.loads((p / "result.json").read_text())["accuracy"] for m, p in against.items()}
        random = [row[-1] for row in matrices["random"]]
        expected = rho(finding.result["accuracy"], matrices["joint"], random)[-1]
        assert finding.value(reading("rho")) == pytest.approx(expected)
    # What the study found about its own runs is written into them; a shared reference stays as it was.
    own = json.loads((outcome.findings[0].run.path / "result.json").read_text())
    shared = json.loads((outcome.findings[1].run.path / "result.json").read_text())
    assert own["metrics"]["rho"] is not None
    assert shared["metrics"]["rho"] is None

    again, executor, watch = carried(tmp_path)
    assert (watch.todo, watch.finished, executor.given) == (0, 8, [])
    assert [f.result for f in again.findings] == [f.result for f in outcome.findings]

    other = TEXT.replace('["hat", "sgd"]', '["ewc"]')
    _, executor, watch = carried(tmp_path, other, "other")
    assert watch.finished == 4  # joint and random are shared by all studies
    assert [name.rsplit("-", 1)[0] for name in executor.given] == [f"split-digits-ewc-mlp-s{s}" for s in (0, 1)]

    write(outcome, tmp_path / "small")
    for name in ("report.html", "table.csv", "runs.csv", "table.tex"):
        assert (tmp_path / "small" / name).stat().st_size > 0
    assert "1 of 1 figure within the paper’s band." in summary(outcome, tmp_path / "small")


@pytest.mark.filterwarnings("ignore::hatrack.learn.fit.DivergenceWarning")
def test_runs_and_references_that_diverged_are_named(tmp_path: Path) -> None:
    text = TEXT.replace("widths = [8]", "widths = [8]\nlr = 1e20\nclip = 1e30").replace('["hat", "sgd"]', '["ewc"]')
    for _ in range(2):  # also where all was finished before
        outcome, _, _ = carried(tmp_path, text)
        names = sorted(path.name.rsplit("-", 1)[0] for path in outcome.diverged)
        assert names == [f"split-digits-{method}-mlp-s{seed}" for method in ("ewc", "joint") for seed in (0, 1)]


def test_a_run_whose_reference_failed_has_its_report_all_the_same(
    tmp_path: Path, drawn: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace("[0, 1]", "[0]").replace('["hat", "sgd"]', '["hat"]')
    real = job.prepare

    def prepare(spec: Spec, checkpoint: Path) -> Setup:
        if spec.method == "joint":
            raise HatrackError("no joint today.")
        return real(spec, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(job, "prepare", prepare)
        outcome, _, _ = carried(tmp_path, text)
    run = outcome.findings[0].run.path
    assert list(outcome.reasons.values()) == ["no joint today."]
    assert run in drawn
    drawn.clear()
    with monkeypatch.context() as patch:
        patch.setattr("hatrack.studies.findings.write_report", lambda path: exit())  # as if killed, with ρ just stored
        with pytest.raises(SystemExit):
            carried(tmp_path, text)
    assert run not in drawn
    again, _, _ = carried(tmp_path, text)
    assert again.findings[0].value(reading("rho")) is not None
    assert run in drawn  # again, now that ρ is known


def test_a_measure_after_more_tasks_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        HatrackError, match="measure 'acc@6' needs 6 tasks, but no benchmark of the study has more than 5"
    ):
        carried(tmp_path, TEXT.replace('"acc", "rho"', '"acc@5", "acc@6"'))
    assert not (tmp_path / "small").exists()


def test_a_measure_without_any_value_is_named(tmp_path: Path) -> None:
    text = TEXT.replace('"acc", "rho"', '"acc", "capacity:fc1", "capacity:nope@2", "F-each"').replace("[0, 1]", "[0]")
    _, _, watch = carried(
        tmp_path, text.replace("split-digits", "permuted-digits").replace("epochs", "tasks = 2\nepochs")
    )
    assert watch.notices == [
        "no finished run has a value of measure 'capacity:nope@2'; the layers are fc1.",
        "no finished run has a value of measure 'F-each'.",
    ]


FAILING = """
benchmarks = ["split-digits"]
methods = ["sgd", "large"]
measures = ["acc"]
[shared]
epochs = 1
[method.sgd]
widths = [8]
[method.large]
use = "ewc"
net = "alexnet"
"""


def test_a_failed_run_is_reported_and_stops_nobody(tmp_path: Path) -> None:
    outcome, _, _ = carried(tmp_path, FAILING)
    sgd, large = outcome.findings
    assert sgd.result is not None
    assert large.result is None
    assert large.reason.startswith("alexnet takes square pictures of at least 20×20")
    assert list(outcome.reasons) == [large.run.path]
    text = summary(outcome, tmp_path / "small")
    assert "Failed (the same command tries them again):" in text
    assert "alexnet takes square pictures" in text
    write(outcome, tmp_path / "small")
    assert "alexnet takes square pictures" in (tmp_path / "small" / "report.html").read_text()
    _, executor, _ = carried(tmp_path, FAILING)
    assert [name.rsplit("-s0", 1)[0] for name in executor.given] == ["split-digits-ewc-alexnet"]


def test_a_surprise_leaves_its_trace_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = FAILING.replace('["sgd", "large"]', '["sgd"]').split("[method.large]")[0]
    with monkeypatch.context() as patch:
        patch.setattr("hatrack.studies.job.executing", lambda *given: 1 / 0)
        outcome, _, watch = carried(tmp_path, text)
    assert list(watch.ended.values()) == ["ZeroDivisionError: division by zero"]
    [trace] = (tmp_path / "small" / "failures").iterdir()
    assert "Traceback" in trace.read_text()
    outcome, _, _ = carried(tmp_path, text)
    assert outcome.reasons == {}
    assert not trace.exists()


def test_a_reference_of_other_data_is_not_used(tmp_path: Path) -> None:
    outcome, _, _ = carried(tmp_path)
    run = outcome.findings[0].run
    joint = next(path for path in run.against if "joint" in path.name)
    edited(joint / "result.json", lambda result: result["tasks"][0].update(train=1))
    again, _, watch = carried(tmp_path)
    assert watch.notices
    assert "their tasks differ" in watch.notices[0]
    assert again.findings[0].result is not None
    assert again.findings[0].result["metrics"]["rho"] is None  # not what the reference gave before


def test_two_processes_cannot_work_on_one_study(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    lock(tmp_path / "small")
    with pytest.raises(HatrackError, match="is in use by another hatrack process"):
        carried(tmp_path)


MNIST = """
seeds = [0, 1]
benchmarks = ["mnist2"]
methods = ["sgd"]
measures = ["acc"]
[shared]
epochs = 1
widths = [8]
"""


def test_missing_data_are_named_in_the_words_of_run_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "small.toml").write_text(MNIST)
    assert main("run --benchmark mnist2 --data empty".split()) == 2
    words = capsys.readouterr().err
    assert words.startswith("hatrack: mnist: no train and test Parquet files in ")
    assert main("study small.toml --data empty".split()) == 2
    assert capsys.readouterr() == ("", words)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "small.toml"]


def test_a_finished_run_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HATRACK_CACHE", str(tmp_path / "cache"))
    write_set(tmp_path / "data", "mnist", train=10)
    there, gone = Machine("cpu", str(tmp_path / "data")), Machine("cpu", str(tmp_path / "gone"))
    finished, _, _ = carried(tmp_path, MNIST, machine=there)
    again, executor, _ = carried(tmp_path, MNIST, machine=gone)
    assert executor.given == []
    assert [f.result for f in again.findings] == [f.result for f in finished.findings]
    part, _, watch = carried(tmp_path, MNIST.replace("[0, 1]", "[0, 2]"), machine=gone)
    assert [f.result is not None for f in part.findings] == [True, False]
    assert [str(reason)[:11] for reason in watch.ended.values()] == ["data names "]


def test_a_benchmark_without_data_does_not_stop_the_others(tmp_path: Path) -> None:
    both = MNIST.replace('"mnist2"', '"mnist2", "split-digits"').replace("[0, 1]", "[0]")
    outcome, _, watch = carried(tmp_path, both, machine=Machine("cpu", str(tmp_path)))
    assert [f.result is not None for f in outcome.findings] == [False, True]
    assert sum(reason is None for reason in watch.ended.values()) == 1


def test_the_data_of_a_cluster_need_not_be_here(tmp_path: Path) -> None:
    _, executor, watch = carried(tmp_path, MNIST, machine=Machine("cpu", str(tmp_path / "gone"), remote=True))
    assert len(executor.given) == 2
    assert all(reason is not None and reason.startswith("data names ") for reason in watch.ended.values())
