"""The line that shows how far a task is: on a terminal again and again, elsewhere only what came of it."""

from __future__ import annotations

import sys
from io import StringIO
from types import SimpleNamespace

import pytest

import hatrack
from hatrack import Epoch, Learner, TaskHistory
from hatrack.learn.progress import ProgressLine
from hatrack.methods import METHODS
from hatrack.nets import build


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def epoch(number: int, name: str = "a") -> Epoch:
    return Epoch(0, name, 0, number, 20, 0.5 / number, 0.4, 0.75, 0.1, None, None, True)


def learner() -> Learner:
    return Learner(build("mlp", (1, 8, 8), widths=(6,)), METHODS["sgd"](), epochs=2)


def test_a_terminal_has_one_line_that_is_written_again() -> None:
    out = Terminal()
    line = ProgressLine(out, clock=iter([0.0, 1.0, 2.0, 3.0]).__next__)
    line.on_epoch(epoch(1))
    line.on_epoch(epoch(2))
    line.on_task(TaskHistory("a", {}, [epoch(1), epoch(2)], 3.0, [0.5, 0.875]))
    line.close()
    first, second, last = out.getvalue().split("\r")[1:]
    assert first == "a: epoch 1 of at most 20, loss 0.5000, validation accuracy 0.7500, 1 s"
    assert second == "a: epoch 2 of at most 20, loss 0.2500, validation accuracy 0.7500, 2 s"
    assert last.startswith("a: 2 epochs, loss 0.2500, validation accuracy 0.7500, test accuracy 0.8750, 3 s")
    assert last.endswith("\n")
    assert len(last.rstrip("\n")) >= len(second)  # nothing of the line before shows behind it


def test_a_long_name_stays_on_the_line_and_commands_in_it_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    ProgressLine(out).on_epoch(epoch(1, "\x1b[2J" + "long " * 40))
    assert len(out.getvalue()) == 1 + 39
    assert "\x1b" not in out.getvalue()


def test_nothing_is_written_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, other = hatrack.tasks("split-digits", seed=0)[:2]
    learner().learn(task)
    assert capfd.readouterr() == ("", "")
    asked = learner()
    asked.learn(task, progress=True)
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert "\r" not in written.err
    assert written.err.startswith("digits 0-1: 2 epochs, loss ")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    asked.learn(other, progress=False)
    assert terminal.getvalue() == ""
    learner().learn(other)
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().count("\r") == 3


def test_what_breaks_a_task_off_begins_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: TaskHistory) -> None:
        raise RuntimeError

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(RuntimeError):
        learner().learn(hatrack.tasks("split-digits", seed=0)[0], callback=SimpleNamespace(on_task=fail))
    assert terminal.getvalue().endswith("\n")
