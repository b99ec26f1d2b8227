"""A whole split-mnist HAT run of hatrack beside those of its peers, each in its own process and environment.

    python benchmarks/peers/whole.py --data DIR [--rounds 3] [--epochs 1] [--threads 2] [--without SIDE] [--table FILE]

Five tasks of two digits, MLP 784-2000-2000 without dropout and a head a task, batch 64, plain SGD at 0.05, s_max 400,
c 0.75, a fixed number of epochs, 10 % held out and looked at after every epoch, all tasks so far tested after every
task. A round has one run of every side, the next one another order and seed; ratios are taken within a round.
Process start and imports are timed by themselves. The data is put where each side reads it before the clock starts:
hatrack's cache of decoded pictures, normalised tensors for hat-cl, MNIST's own files for CLArena. hatrack writes all
its files; the peers write none but CLArena's small tables. CPU seconds are those of the whole process, start included.
They say more than the clock when something else runs on the machine. What each computes differently is in the
docstrings of the sides. Environments: setup-hat-cl.sh, setup-clarena.sh; a side whose environment is missing is
left out and named. Avalanche has no HAT.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import mean, median
from time import perf_counter

import numpy as np

import hatrack
from hatrack.data.image_set import load

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from export import prepared  # noqa: E402

SIDES = {
    "hatrack": (Path(sys.executable), "our_whole.py"),
    "hat-cl": (HERE / ".venv-hat-cl" / "bin" / "python", "hat_cl_whole.py"),
    "CLArena": (HERE / ".venv-clarena" / "bin" / "python", "clarena_whole.py"),
}


@dataclass(frozen=True)
class Run:
    """One run of one side: seconds until imports were done, seconds after, CPU seconds of all, final accuracies."""

    start: float
    seconds: float
    cpu: float
    accuracies: list[float]


def export_tensors(work: Path, seed: int, data: str | None) -> None:
    """Write hatrack's tasks of a seed as normalised arrays."""
    arrays = {}
    for t, task in enumerate(hatrack.tasks("split-mnist", seed=seed, data=data)):
        for part in ("train", "valid", "test"):
            x, y = prepared(task, getattr(task, part))
            arrays |= {f"{part}/x/{t}": x.reshape(len(x), -1), f"{part}/y/{t}": y}
    np.savez(work / "tasks.npz", **arrays)


def export_idx(work: Path, data: str | None) -> None:
    """Write MNIST in its own format, where torchvision looks for it."""
    pictures, raw = load("mnist", data), work / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, rows in (("train", pictures.train), ("t10k", pictures.test)):
        x, y = np.asarray(pictures.x)[rows], np.asarray(pictures.y)[rows].astype(np.uint8)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, len(x), 28, 28) + x.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, len(y)) + y.tobytes())


def cpu_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(name: str, given: argparse.Namespace, work: Path, seed: int) -> Run:
    """Run one side in its own process."""
    python, script = SIDES[name]
    out = work / "out"
    words = [str(python), str(HERE / script), "--data", str(given.data), "--work", str(work), "--out", str(out)]
    words += ["--seed", str(seed), "--epochs", str(given.epochs)]
    used = cpu_seconds()
    environment = {**os.environ, "OMP_NUM_THREADS": str(given.threads), "MKL_NUM_THREADS": str(given.threads)}
    with (work / "log").open("w+") as log:
        began = perf_counter()
        pipes = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
        with subprocess.Popen(words, env=environment, cwd=work, **pipes) as process:
            assert process.stdout is not None
            process.stdout.readline()
            ready = perf_counter()
            answer = process.stdout.readline()
            ended = perf_counter()
        if not answer:
            log.seek(0)
            raise SystemExit(f"{name} did not finish:\n{log.read()[-3000:]}")
    shutil.rmtree(out, ignore_errors=True)
    return Run(ready - began, ended - ready, cpu_seconds() - used, json.loads(answer))


def table(runs: dict[str, list[Run]]) -> list[str]:
    """Return medians over rounds; ratios are medians of the ratios within rounds."""
    lines = [
        "| side | seconds | × hatrack (rounds) | CPU s | × hatrack (rounds) | start, imports | average accuracy |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    ours = runs["hatrack"]
    for name, mine in runs.items():
        scores = [mean(r.accuracies) for r in mine]
        lines.append(
            f"| {name} | {against([r.seconds for r in mine], [r.seconds for r in ours])} "
            f"| {against([r.cpu for r in mine], [r.cpu for r in ours])} "
            f"| {median(r.start for r in mine):.1f} | {mean(scores):.4f} ({min(scores):.4f} to {max(scores):.4f}) |"
        )
    return lines


def against(mine: list[float], ours: list[float]) -> str:
    """Return two cells: the median, and the ratios to ours, their median first."""
    ratios = [m / o for m, o in zip(mine, ours, strict=True)]
    return f"{median(mine):.1f} | {median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"


def main() -> int:
    """Run all sides in turns and print the table after every round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        type=os.path.abspath,
        help="folder of the image sets (or HATRACK_DATA)",
        default=os.getenv("HATRACK_DATA"),
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without", nargs="+", choices=list(SIDES)[1:], default=[], help="peers to leave out")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    there = [name for name, (python, _) in SIDES.items() if python.exists() and name not in given.without]
    runs: dict[str, list[Run]] = {name: [] for name in there}
    missing = [name for name, (python, _) in SIDES.items() if not python.exists()]
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        export_idx(work, given.data)
        for seed in range(1, given.rounds + 1):
            export_tensors(work, seed, given.data)
            turn = seed % len(there)
            for name in there[turn:] + there[:turn]:
                runs[name].append(run(name, given, work, seed))
                latest = runs[name][-1]
                print(f"round {seed}: {name} {latest.seconds:.1f} s, {mean(latest.accuracies):.4f}", flush=True)
            lines = table(runs)
            print("\n".join(lines), flush=True)
    if missing:
        lines += ["", f"Left out, for want of an environment: {', '.join(missing)}."]
        print(lines[-1])
    if given.table:
        given.table.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
