"""Names that hold escape codes: nothing of them reaches the terminal, wherever they are shown."""

from __future__ import annotations

import io
import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hatrack import cli
from hatrack.errors import HatrackError, HatrackWarning
from hatrack.learn.fit import Epoch
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.runs.spec import Spec
from hatrack.show.live import LiveProgress
from hatrack.show.progress import PlainProgress
from hatrack.show.study import StudyProgress
from hatrack.show.summary import seeds_summary, summary
from hatrack.show.terminal import complain, say, say_line
from hatrack.show.tune import TuneProgress
from hatrack.studies import text as study_text
from hatrack.studies.job import Job
from hatrack.studies.notices import notices_to
from report.folder import write_run
from studies.made_up import TEXT, outcome

EVIL = "a\x1b[2J\x1b]0;x\x07\r\x9b1m\nhatrack: b"
PLAN = RunPlan(Spec(device="cpu"), Path(EVIL), [EVIL, EVIL], 1, [10, 10], finished=0, resumed=False)
EPOCH = Epoch(0, EVIL, 0, 1, 1, 0.25, 0.5, 0.9, 0.05, None, None, True)


def controls(text: str) -> set[str]:
    return {c for c in text if c < " " or "\x7f" <= c < "\xa0"} - {"\n"}


def watch(callback: PlainProgress) -> None:
    callback.on_start(PLAN)
    callback.on_epoch(EPOCH)
    callback.on_task(TaskResult(0, EVIL, [0.5], 1, None, 1.0))


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter(range(0, 1000, 20))
    watch(PlainProgress(clock=lambda: float(next(now))))
    out = capsys.readouterr().out
    assert not controls(out)
    assert out.count("\n") == 3


def test_redrawn_lines() -> None:
    def drawn(evil: bool) -> str:
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=200, color_system=None)
        plan = PLAN if evil else replace(PLAN, names=["a", "a"], path=Path("a"))
        with LiveProgress(console) as live:
            live.on_start(plan)
            live.on_epoch(EPOCH)
            live._live.refresh()
            live.on_task(TaskResult(0, plan.names[0], [0.5], 1, None, 1.0))
            live._live.refresh()
        return out.getvalue()

    assert controls(drawn(True)) == controls(drawn(False))  # rich's own
    assert "\x1b[2J" not in drawn(True)
    assert "\x1b]" not in drawn(True)


def test_the_summaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, tasks=2, names=[EVIL, "b"], sites={EVIL: 4})
    result = json.loads((tmp_path / "result.json").read_text())
    lines = summary(result, Path(EVIL)).splitlines()
    plain = write_run(tmp_path / "plain", tasks=2, names=["a", "b"], sites={"c": 4})
    assert len(lines) == len(summary(json.loads((plain / "result.json").read_text()), Path("x")).splitlines())
    several = seeds_summary([0, 1], [result, HatrackError(EVIL)], [Path(EVIL), tmp_path])
    assert several.count("\n") == 2
    assert not controls("".join([*lines, several]))


def test_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    escaped = json.dumps(EVIL)
    text = TEXT.replace('"ewc"', escaped).replace("[paper]", f'[method.{escaped}]\nuse = "ewc"\n[paper]', 1)
    made = outcome(tmp_path, text, failed=((EVIL, 2),))
    made = replace(made, reasons=dict.fromkeys(made.reasons, EVIL))
    say(study_text.summary(made, Path(EVIL)))
    progress, job = StudyProgress(), Job(Path(EVIL), Spec(device="cpu"))
    progress.planned(1, 0)
    progress.said(job, EVIL)
    progress.over(job, EVIL)
    tune = TuneProgress()
    tune.trial(1, 2, 0, 0.5, {"a": EVIL}, best=True)
    tune.failed(0, EVIL)
    tune.notice(0, EVIL)
    out, err = capsys.readouterr()
    assert not controls(out + err)
    assert all(line.startswith("hatrack: ") for line in err.splitlines())
    rows = [line for line in out.splitlines() if line.startswith("a\\x1b[2J")]
    assert len(rows) == 1
    assert "\\nhatrack: b" in rows[0]


def test_warnings_and_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with notices_to(complain):
        warnings.simplefilter("always")
        warnings.warn(HatrackWarning(EVIL), stacklevel=1)
        logging.getLogger("hatrack").warning(EVIL)
    err = capsys.readouterr().err
    assert err == 2 * "hatrack: a\\x1b[2J\\x1b]0;x\\x07 \\x9b1m hatrack: b\n"


def test_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["resume", EVIL], ["list", EVIL], [EVIL], ["run", f"--{EVIL}"], ["study", f"{EVIL}.toml"]):
        assert cli.main(words) == 2
        err = capsys.readouterr().err
        assert not controls(err)
        assert err.count("\n") == 1


def test_an_error_that_nobody_takes_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr", Full())
    assert cli.main(["list", "x"]) == 2


def test_the_three_ways_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b\nb")
    say_line("a\x1b\nb")
    complain("a\x1b\nb")
    assert capsys.readouterr() == ("a\\x1b\nb\na\\x1b\\nb\n", "hatrack: a\\x1b b\n")
