"""A training step of hatrack beside those of its peers, each in its own environment, in one interleaved run.

    python benchmarks/peers/speed.py [--rounds 15] [--steps 5] [--table FILE]

Network: an MLP 784-2000-2000 with a head of 5 classes a task, batch 64, plain SGD, second task, on noise, one thread:
the largest that hat-cl runs (flatten and depthwise convolutions raise there). Environments: setup.sh,
setup-hat-cl.sh and setup-clarena.sh; a side whose environment is missing is left out and named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import IO

HERE = Path(__file__).parent
AVALANCHE, HAT_CL, CLARENA = (HERE / f".venv-{name}" / "bin" / "python" for name in ("avalanche", "hat-cl", "clarena"))
SIDES = {
    "plain torch loop": (Path(sys.executable), "our_steps.py", "plain"),
    "hatrack sgd": (Path(sys.executable), "our_steps.py", "sgd"),
    "hatrack hat": (Path(sys.executable), "our_steps.py", "hat"),
    "hatrack ewc": (Path(sys.executable), "our_steps.py", "ewc"),
    "hat-cl HAT": (HAT_CL, "hat_cl_steps.py", ""),
    "CLArena HAT": (CLARENA, "clarena_steps.py", ""),
    "Avalanche Naive": (AVALANCHE, "avalanche_steps.py", "naive"),
    "Avalanche EWC": (AVALANCHE, "avalanche_steps.py", "ewc"),
}


class Side:
    """A process that does steps when told to."""

    def __init__(self, python: Path, script: str, argument: str) -> None:
        words = [str(python), str(HERE / script), *([argument] if argument else [])]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HERE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[str] = self._process.stdin
        self._output: IO[str] = self._process.stdout
        if self._output.readline().strip() != "ready":
            raise SystemExit(f"{script} {argument} ended before it was ready; run it by hand to see why.")

    def take(self, steps: int) -> float:
        """Return the seconds that so many steps took."""
        print(steps, file=self._input, flush=True)
        return float(self._output.readline())

    def end(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.wait()


def main() -> int:
    """Time all sides in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    there = {name: how for name, how in SIDES.items() if how[0].exists()}
    sides = {name: Side(*how) for name, how in there.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for turn in range(given.rounds + 1):
            for name, side in sides.items():
                seconds = side.take(given.steps)
                if turn:  # the first round warms up
                    times[name].append(seconds / given.steps)
    finally:
        for side in sides.values():
            side.end()
    first = next(iter(times.values()))
    lines = ["| side | ms a step | × plain loop |", "|---|---:|---:|"]
    for name, taken in times.items():
        ratio = median(t / f for t, f in zip(taken, first, strict=True))
        lines.append(f"| {name} | {1000 * median(taken):.1f} | {ratio:.2f} |")
    missing = [name for name in SIDES if name not in there]
    lines += ["", f"Left out, for want of an environment: {', '.join(missing)}."] if missing else []
    text = "\n".join(lines)
    print(text)
    if given.table:
        given.table.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
