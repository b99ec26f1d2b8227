"""Kill a run with SIGKILL, again and again, and let it go on: a script, because it forks a process with torch.

    python killing.py moments WHOLE CUT   kill CUT at ten random moments
    python killing.py steps WHOLE CUT     kill CUT before its first step on files, then its second, its third, …

WHOLE is the same run, left alone. It is carried out by the parent, so that a child finds everything imported
and a killed process costs only what it computes. CUT is to be alone in its folder.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from hatrack.cli import main

EPOCHS = {"moments": 12, "steps": 2}


def run(out: Path) -> int:
    epochs = str(EPOCHS[sys.argv[1]])
    return main(["run", "--epochs", epochs, "--set", "widths=[24, 16]", "--seed", "3", "--out", str(out)])


def run_or_resume(out: Path) -> int:
    return main(["resume", str(out)]) if out.exists() else run(out)


def fork(do: Callable[[], int]) -> int:
    """Start `do` in a process of its own, with its output thrown away, and return its id."""
    child = os.fork()
    if child == 0:
        code = 99
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            code = do()
        finally:
            os._exit(code)
    return child


def wait(child: int) -> int:
    """Return the exit code of a child, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def at_moments(cut: Path, seconds: float) -> int:
    """Kill the run ten times; return how often it was still running.

    Most are killed some time after they have got on, spread over what the run takes; some right at the start.
    """
    draw = random.Random(5)
    kills = 0
    for _ in range(10):
        before = size(cut / "metrics.jsonl")
        child = fork(lambda: run_or_resume(cut))
        if draw.random() < 0.8:
            while size(cut / "metrics.jsonl") == before:
                time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.16 * seconds))
        os.kill(child, signal.SIGKILL)
        kills += wait(child) == -signal.SIGKILL
    return kills


def at_steps(cut: Path) -> int:
    """Kill the n-th process before its n-th step on the run's files, until one gets through; return the kills."""

    def killed_at(step: int) -> int:
        steps = 0

        def before(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal steps
            if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"):
                paths = [os.fsdecode(a) for a in arguments if isinstance(a, str | os.PathLike)]
                steps += any(str(cut.parent) in path for path in paths)
                if steps == step:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(before)
        return run_or_resume(cut)

    step = 1
    while (code := wait(fork(partial(killed_at, step)))) == -signal.SIGKILL:
        step += 1
    assert code == 0, code
    return step - 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, whole, cut = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).absolute()
    assert run(whole) == 0
    timed = whole.with_name("timed")
    assert wait(fork(lambda: run(timed))) == 0
    seconds = json.loads((timed / "result.json").read_text())["seconds"]
    kills = at_moments(cut, seconds) if kind == "moments" else at_steps(cut)
    assert wait(fork(lambda: run_or_resume(cut))) == 0
    print(f"kills: {kills}")
