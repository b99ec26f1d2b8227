"""Progress as plain lines and on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from hatrack.learn.fit import Epoch
from hatrack.runs.callback import RunPlan, TaskResult
from hatrack.runs.spec import Spec
from hatrack.show.live import LiveProgress
from hatrack.show.progress import PlainProgress, TimeLeft

PLAN = RunPlan(
    Spec(device="cpu"), Path("runs/x"), ["zero [b]one[/b]", "two"], 200, [100, 100], finished=0, resumed=False
)


def epoch(task: int, number: int, **other: float | None) -> Epoch:
    given = {"s": 400.0, "capacity": 0.123} | other
    return Epoch(
        task=task,
        name=PLAN.names[task],
        phase=0,
        epoch=number,
        epochs=200,
        train_loss=0.25,
        valid_loss=0.5,
        valid_accuracy=0.9375,
        lr=0.05,
        best=True,
        **given,  # type: ignore[arg-type]
    )


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    plain = PlainProgress(clock=lambda: now[0])
    plain.on_start(PLAN)
    for number in range(1, 25):  # one second an epoch
        now[0] += 1.0
        plain.on_epoch(epoch(0, number))
    plain.on_task(TaskResult(0, PLAN.names[0], [0.9876], 24, 0.123, 24.0))
    now[0] += 11.0
    plain.on_epoch(epoch(1, 1, s=None, capacity=None))
    assert capsys.readouterr().out.splitlines() == [
        "hat on split-digits, net mlp, seed 0, cpu → runs/x",
        "task 1/2 zero [b]one[/b]: epoch 10 of at most 200, loss 0.2500, accuracy 0.9375, lr 0.05, s 400, "
        "capacity 12.3 %, at most 6:30 left",
        "task 1/2 zero [b]one[/b]: epoch 20 of at most 200, loss 0.2500, accuracy 0.9375, lr 0.05, s 400, "
        "capacity 12.3 %, at most 6:20 left",
        "task 1/2 zero [b]one[/b]: test accuracy 0.9876, 24 epochs, capacity 12.3 %, 0:24",
        "task 2/2 two: epoch 1 of at most 200, loss 0.2500, accuracy 0.9375, lr 0.05, at most 4:39 left",
    ]


def test_a_terminal_shows_all_that_matters_in_80_columns() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with LiveProgress(console) as live:
        live.on_start(PLAN)
        live.on_epoch(epoch(0, 3))
        live._live.refresh()
        live.on_task(TaskResult(0, PLAN.names[0], [0.9876], 3, 0.123, 24.0))
        live.on_epoch(epoch(1, 7, s=None, capacity=None))
        live._live.refresh()
    text = out.getvalue()
    for part in (
        "hat on split-digits, net mlp, seed 0, cpu → runs/x",
        "1/2 zero [b]one[/b]  epoch 3 of at most 200",
        "loss 0.2500  accuracy 0.9375  lr 0.05  s 400  capacity 12.3 %",
        "left",
        "1/2 zero [b]one[/b]  test accuracy 0.9876  3 epochs  capacity 12.3 %  0:24",
        "2/2 two  epoch 7 of at most 200",
    ):
        assert part in text


def test_a_resumed_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    PlainProgress().on_start(RunPlan(PLAN.spec, PLAN.path, PLAN.names, 200, PLAN.work, finished=1, resumed=True))
    assert capsys.readouterr().out.endswith("(resumed: 1 of 2 tasks were finished)\n")


def test_the_bound_by_hand() -> None:
    now = [0.0]
    left = TimeLeft(work=[100, 200], epochs=3, clock=lambda: now[0])
    now[0] = 2.0  # one epoch of 100 samples took 2 s: 0.02 s a sample; 2·100 + 3·200 = 800 samples are left
    assert left.after(0, 1) == 16.0
    now[0] = 3.0  # 200 samples in 3 s, 700 left
    assert left.after(0, 2) == 10.5
    now[0] = 5.0  # the first task stopped early: 400 samples in 5 s, 2·200 left
    assert left.after(1, 1) == 5.0
    assert left.elapsed() == 5.0
