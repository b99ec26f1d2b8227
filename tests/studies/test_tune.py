"""The search: what it explores, that it never sees a test set, what it gives up, and that it goes on."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hatrack.cli import main
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.runs.spec import resolve
from hatrack.studies.file import read
from hatrack.studies.objective import Report, Trial, score
from hatrack.studies.pool import Done
from hatrack.studies.search_space import space, within
from hatrack.studies.tune import Search, repair, should_prune, tune

optuna = pytest.importorskip("optuna")
GIVEN = {"method": "sgd", "benchmark": "split-digits", "epochs": 1, "device": "cpu"}
FIXED = {"widths": [8]}
WHOLE = b'{"op_code":0}\n{"op_code":4}\n'  # a journal


def table(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


class Poison(Split):
    """A part of a task that must not be looked at."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def _refuse(self, *given: Any) -> Any:
        raise AssertionError("the test set was looked at")

    on = first = take = dataset = _refuse
    __len__ = _refuse
    labels = resident = property(_refuse)  # type: ignore[assignment]


def test_the_test_sets_are_never_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from hatrack.runs import setup

    real = setup.sequence_of

    def poisoned(spec: Any) -> list[Task]:
        made = real(spec)
        for task in made:
            task.test = Poison()
        return made

    monkeypatch.setattr(setup, "sequence_of", poisoned)
    plain = setup.prepare(resolve(GIVEN, list(FIXED.items())))
    with pytest.raises(AssertionError, match="was looked at"):
        plain.learner.learn(plain.tasks[0])  # the poison works
    told: list[Report] = []
    value = score(Trial(0, [resolve({**GIVEN, "seed": s}, list(FIXED.items())) for s in (0, 1)]), told.append)
    assert [report.step for report in told] == list(range(1, 11))
    assert [report.early for report in told] == [True] * 2 + [False] * 8
    assert value == pytest.approx((told[4].value + told[9].value) / 2)


def test_the_figure_is_the_accuracy_on_the_validation_samples() -> None:
    from hatrack.runs.setup import prepare

    spec = resolve({**GIVEN, "epochs": 2}, list(FIXED.items()))
    setup = prepare(spec)
    for task in setup.tasks:
        setup.learner.learn(task)
    right = total = 0.0
    for index, task in enumerate(setup.tasks):
        assert task.valid is not None
        x, y = task.valid.on(setup.learner.device)
        right += float((setup.learner.predict(x, index).argmax(1) == y).float().mean())
        total += 1
    assert score(Trial(0, [spec]), lambda report: False) == pytest.approx(right / total)


def test_a_trial_stops_when_told() -> None:
    steps: list[int] = []

    def tell(report: Report) -> bool:
        steps.append(report.step)
        return report.step == 2

    assert score(Trial(0, [resolve(GIVEN, list(FIXED.items()))]), tell) is None
    assert steps == [1, 2]


def test_what_is_hopeless() -> None:
    earlier: list[Mapping[int, float]] = [{1: 0.9, 2: value} for value in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert should_prune(Report(2, 0.29), earlier)
    assert not should_prune(Report(2, 0.3), earlier)
    assert not should_prune(Report(2, 0.29, early=True), earlier)
    assert not should_prune(Report(2, 0.29), earlier[:4])  # too few to say
    assert not should_prune(Report(3, 0.0), earlier)  # nobody has been there


def test_the_declared_ranges_are_explored_and_what_is_set_is_not() -> None:
    assert set(space("hat", [])) == {"lr", "s_max", "c"}
    assert set(space("hat", ["lr", "widths"])) == {"s_max", "c"}
    assert all(map(within, space("hat", []).values()))
    with pytest.raises(HatrackError, match="nothing to tune of 'sgd': all that have a range are set"):
        space("sgd", ["lr"])
    with pytest.raises(HatrackError, match="nothing to tune of 'random': it never trains"):
        space("random", [])


class Here:
    """A pool of one worker, in this process."""

    def __init__(self, size: int, prepare: Callable[[int], None] | None = None) -> None:
        pass

    def run(self, items: Iterable[Trial], work: Any, hear: Callable[[Trial, Any], Any]) -> Iterator[Done[Trial]]:
        for item in items:
            yield Done(item, work(item, lambda message, item=item: hear(item, message)))


class Note:
    """A callback that notes the numbers of finished trials, and stops the search after some."""

    def __init__(self, stop: int | None = None) -> None:
        self.numbers: list[int] = []
        self.best: list[bool] = []
        self.given_up = 0
        self.notices: list[tuple[int, str]] = []
        self._stop = stop

    def trial(
        self, done: int, trials: int, number: int, value: float | None, params: Mapping[str, Any], best: bool
    ) -> None:
        self.numbers.append(number)
        self.best.append(best)
        self.given_up += value is None
        if done == self._stop:
            raise KeyboardInterrupt

    def failed(self, number: int, reason: str) -> None:
        raise AssertionError(reason)

    def notice(self, number: int, line: str) -> None:
        self.notices.append((number, line))


def test_a_search_goes_on_and_its_best_is_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    search = Search(GIVEN, FIXED, [0], 9)
    with pytest.raises(KeyboardInterrupt):
        tune(search, tmp_path / "t", 1, Note(stop=3))
    note = Note()
    best = tune(search, tmp_path / "t", 1, note)
    assert len(note.numbers) == 6
    lines = table(tmp_path / "t" / "trials.csv")
    done = [line for line in lines if line["state"] in ("complete", "pruned")]
    assert len(done) == 9
    assert note.given_up == sum(line["state"] == "pruned" for line in lines)
    assert all((line["validation_accuracy"] == "") == (line["state"] != "complete") for line in lines)
    tried = [line["lr"] for line in done]
    assert len(set(tried)) == len(tried)  # the second start draws on, it does not begin again
    assert float(lines[0]["lr"]) == 0.05  # the default is tried first
    assert best.value == max(float(line["validation_accuracy"]) for line in done if line["state"] == "complete")

    study = read(best.file)
    assert [m.label for m in study.methods] == ["sgd"]
    assert study.methods[0].settings["lr"] == best.settings["lr"]
    assert (study.shared["epochs"], study.shared["net.widths"], study.seeds) == (1, [8], [0])

    with pytest.raises(HatrackError, match="holds a search with other settings"):
        tune(Search({**GIVEN, "epochs": 2}, FIXED, [0], 9), tmp_path / "t", 1, Note())


@pytest.mark.parametrize("name", ["file", "file/x", "a/" * 1200])
def test_a_folder_that_cannot_be_made_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(HatrackError, match=r"cannot make the search's folder .*; choose another --out"):
        tune(Search(GIVEN, FIXED, [0], 1), Path(name), 1, Note())
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_search_described_in_another_encoding_is_another_search(tmp_path: Path) -> None:
    (tmp_path / "journal.log").touch()
    (tmp_path / "search.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(HatrackError, match="holds a search with other settings"):
        tune(Search(GIVEN, FIXED, [0], 1), tmp_path, 1, Note())


@pytest.mark.parametrize("name", ["spec.toml", "study.toml"])
def test_the_folder_of_a_run_or_a_study_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(HatrackError, match="holds a run or a study; choose another --out"):
        tune(Search(GIVEN, FIXED, [0], 1), tmp_path, 1, Note())
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_best_so_far_counts_trials_of_earlier_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    figures = iter([0.5, 0.6, 0.6, 0.4, 0.7])
    monkeypatch.setattr("hatrack.studies.tune.score", lambda trial, tell: next(figures))
    best = []
    for trials in (2, 3, 5):
        note = Note()
        tune(Search(GIVEN, FIXED, [0], trials), tmp_path / "t", 1, note)
        best += note.best
    assert best == [True, True, False, False, True]


@pytest.mark.filterwarnings("always::hatrack.learn.fit.DivergenceWarning")
def test_what_the_library_says_during_a_trial_is_told_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    note = Note()
    tune(Search({**GIVEN, "method": "ewc"}, {**FIXED, "lr": 1e20, "clip": 1e30}, [0], 1), tmp_path / "t", 1, note)
    assert note.notices
    assert all(number == 0 and "diverged in epoch 1 at a learning rate of" in line for number, line in note.notices)


def test_trials_under_way_in_a_killed_process_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    search = Search(GIVEN, FIXED, [0], 2)

    def die(trial: Trial, tell: Callable[[Any], Any]) -> float:
        raise SystemExit  # as if killed: nothing is written about the trial

    with monkeypatch.context() as patch:
        patch.setattr("hatrack.studies.tune.score", die)
        with pytest.raises(SystemExit):
            tune(search, tmp_path / "t", 1, Note())
    tune(search, tmp_path / "t", 1, Note())
    lines = table(tmp_path / "t" / "trials.csv")
    assert [line["state"] for line in lines] == ["fail", "complete", "complete"]
    assert lines[0]["lr"] == lines[1]["lr"]


def test_a_search_killed_in_the_middle_of_a_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    tune(Search(GIVEN, FIXED, [0], 1), tmp_path / "t", 1, Note())
    journal = tmp_path / "t" / "journal.log"
    journal.write_bytes(journal.read_bytes()[:-20])  # of the line that says how the trial ended
    for trials in (1, 2):  # the second start reads what the first one wrote behind the cut
        tune(Search(GIVEN, FIXED, [0], trials), tmp_path / "t", 1, Note())
    lines = table(tmp_path / "t" / "trials.csv")
    assert [line["state"] for line in lines] == ["fail", "complete", "complete"]
    assert lines[0]["lr"] == lines[1]["lr"]


def made_up(trial: Trial, tell: Callable[[Any], Any]) -> float:
    """A figure that follows from the settings, as a trial's does."""
    return 1 - (trial.specs[0].settings["lr"] - 0.1) ** 2


def test_a_search_stopped_at_any_point_draws_what_it_would_have_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    monkeypatch.setattr("hatrack.studies.tune.score", made_up)
    search = Search(GIVEN, FIXED, [0], 14)  # past the ten that TPE draws at random

    def drawn(out: Path) -> list[str]:
        return [line["lr"] for line in table(out / "trials.csv") if line["state"] != "fail"]

    tune(search, tmp_path / "whole", 1, Note())
    # Every record in the journal is a point where a process may be killed.
    records = (tmp_path / "whole" / "journal.log").read_bytes().splitlines(keepends=True)
    for cut in range(1, len(records), 3):
        out = tmp_path / f"cut-{cut}"
        out.mkdir()
        (out / "journal.log").write_bytes(b"".join(records[:cut]))
        tune(search, out, 1, Note())
        assert drawn(out) == drawn(tmp_path / "whole"), cut


@pytest.mark.parametrize("at", ["tell", "enqueue_trial"])
def test_killed_while_it_queues_again_what_was_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setattr("hatrack.studies.tune.Pool", Here)
    search = Search(GIVEN, FIXED, [0], 2)

    def die(*given: Any, **named: Any) -> float:
        raise SystemExit

    for what in ("hatrack.studies.tune.score", f"optuna.study.Study.{at}"):
        with monkeypatch.context() as patch:
            patch.setattr(what, die)
            with pytest.raises(SystemExit):
                tune(search, tmp_path / "t", 1, Note())
    tune(search, tmp_path / "t", 1, Note())
    lines = [line for line in table(tmp_path / "t" / "trials.csv") if line["state"] == "complete"]
    assert [float(line["lr"]) == 0.05 for line in lines] == [True, False]  # the defaults, and once


def test_after_a_trial_that_failed_others_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Here):
        def run(self, items: Iterable[Trial], work: Any, hear: Callable[[Trial, Any], Any]) -> Iterator[Done[Trial]]:
            for item in items:
                yield Done(item, 0.5) if item.number != 1 else Done(item, reason="out of memory")

    class Quiet(Note):
        def failed(self, number: int, reason: str) -> None:
            pass

    monkeypatch.setattr("hatrack.studies.tune.Pool", Failing)
    tune(Search(GIVEN, FIXED, [0], 3), tmp_path / "t", 1, Quiet())
    lines = table(tmp_path / "t" / "trials.csv")
    assert [line["state"] for line in lines] == ["complete", "fail", "complete", "complete"]
    assert len({line["lr"] for line in lines}) == 4


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = "tune --method sgd --epochs 1 --set widths=[8] --seeds 0 --trials 4 --workers 2 --device cpu --out t"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert "best validation accuracy" in out
    assert main(["study", "t/best-sgd-split-digits.toml", "--workers", "1", "--device", "cpu"]) == 0
    assert "sgd on split-digits, tuned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--benchmark mnist2 --data empty", "mnist: no train and test Parquet files in "),
        ("--set widths=[0]", "net 'mlp' cannot be built with "),
        ("--net alexnet", "alexnet takes square pictures of at least 20×20"),
    ],
)
@pytest.mark.parametrize("out", ["new", "empty"])
def test_what_every_trial_would_fail_with_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, says: str, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["tune", "--method", "sgd", "--trials", "2", "--out", out, *words.split()]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"hatrack: {says}")
    assert said.count("\n") == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["empty"]


@pytest.mark.parametrize("piece", [b"", b'{"op_code":5,"tri', b"\xc3"])
def test_the_beginning_of_a_line_is_taken_away(tmp_path: Path, piece: bytes) -> None:
    journal = tmp_path / "journal.log"
    journal.write_bytes(WHOLE + piece)
    repair(journal)
    assert journal.read_bytes() == WHOLE


def test_the_lock_of_a_killed_process_is_taken_away(tmp_path: Path) -> None:
    # As Optuna makes it, which leads nowhere when the path was relative; and as it renames it to give it up.
    for name in ("journal.log.lock", "journal.log.lock0a1b-2c3d.rename"):
        (tmp_path / name).symlink_to("t/journal.log")
    repair(tmp_path / "journal.log")
    assert list(tmp_path.iterdir()) == []  # a journal that is not there yet is Optuna's to make


@pytest.mark.parametrize("junk", [b"junk", b"", b"\xff\xfe", b"[1]", b"{}", b'{"op_code":5,"tri'])
def test_a_line_that_is_not_a_record_is_named(tmp_path: Path, junk: bytes) -> None:
    journal = tmp_path / "journal.log"
    journal.write_bytes(WHOLE + junk + b"\n" + WHOLE)
    with pytest.raises(HatrackError, match=re.escape(f"{journal}, line 3, is not a record of Optuna's")):
        repair(journal)
