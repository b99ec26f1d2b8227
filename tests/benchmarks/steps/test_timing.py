"""Sides are timed in turns, and ratios are taken within a round."""

from __future__ import annotations

import pytest
import torch
from hatrack.bench.timing import interleave, machine, repeated

from hatrack.bench import timing

CPU = torch.device("cpu")


def test_ratios_are_taken_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(timing, "perf_counter", lambda: now)
    calls: list[str] = []

    def side(name: str, seconds: list[float]) -> object:
        taken = iter(seconds)

        def call() -> None:
            nonlocal now
            calls.append(name)
            now += next(taken)

        return call

    # The machine is slow in the second round: only a ratio within a round says that b takes twice as long.
    sides = {"a": (side("a", [9, 1, 5, 1]), 2), "b": (side("b", [9, 2, 10, 2]), 1)}
    first, second = interleave(sides, 3, CPU, warm=1)  # type: ignore[arg-type]
    assert calls == ["a", "b", "b", "a"] * 2
    assert first.milliseconds == pytest.approx(500)  # 1 s for 2 steps
    assert second.milliseconds == pytest.approx(2000)
    assert second.ratio == pytest.approx(4)


def test_long_measurements_say_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0

    def slow() -> None:
        nonlocal now
        now += 6

    monkeypatch.setattr(timing, "perf_counter", lambda: now)
    with caplog.at_level("INFO"):
        interleave({"a": (slow, 1)}, 3, CPU, warm=1)
    assert caplog.messages == ["round 3 of 4"]


def test_a_step_is_repeated() -> None:
    done: list[int] = []
    repeated(lambda: done.append(1), 3)()
    assert len(done) == 3


def test_the_machine_is_named_with_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads, said in ((1, "1 thread"), (2, "2 threads")):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        kind = torch.backends.cpu.get_cpu_capability()
        assert machine(CPU) == f"torch {torch.__version__}, CPU ({kind}), {said}"
