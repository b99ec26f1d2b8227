"""What is carried out and killed: commands, what stands in their folder before, and what to give after a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from tests.data.make import write_parquet

from hatrack.methods import METHODS

Words = Sequence[str]
# Masks of weights or units without a promise that nothing old changes.
SOFT = ("cat", "den", "fisher-mask", "fisher-mask-ewc", "hpg", "spg", "spg-fi")
MASKED = (*(name for name, method in METHODS.items() if method.guarantee), *SOFT)
SMALL = ("--epochs", "3", "--set", "widths=[24, 16]", "--device", "cpu")

STUDY = """
seeds = [0]
benchmarks = ["split-digits"]
methods = ["hat", "packnet"]
measures = ["acc", "rho"]
[shared]
epochs = 2
widths = [16]
"""
SEQUENCE = """
shape = [1, 16, 16]
[[task]]
parquet = "signs"
split = 2
"""


@dataclass(frozen=True)
class Scenario:
    """A command and how to go on with it.

    `again(home, done)`: the words to give now, `done` commands having ended well, or None when all is over; `before`:
    commands that make what stands there at the start; `files`: texts that do; `several`: its processes are several,
    so that Python's start is always paid; `watched`: below which folder of its home steps on files are counted;
    `keeps`: it may change nothing, at no moment; `part`: the first kill falls into this part of its time.
    """

    name: str
    kind: str
    again: Callable[[Path, int], Words | None]
    before: Sequence[Words] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    several: bool = False
    watched: str = ""
    keeps: bool = False
    part: float = 1.0


def same(*words: str) -> Callable[[Path, int], Words | None]:
    """Give the same command until it has ended well."""
    return lambda home, done: None if done else words


def run_or_resume(*words: str) -> Callable[[Path, int], Words | None]:
    """Give the command until there is a run, then resume it, as the README says."""

    def again(home: Path, done: int) -> Words | None:
        if done:
            return None
        return ("resume", "run") if (home / "run" / "spec.toml").exists() else ("run", *words, "--out", "run")

    return again


def seeds_together(*words: str) -> Callable[[Path, int], Words | None]:
    """Start two seeds side by side; then go on with each by itself."""

    def again(home: Path, done: int) -> Words | None:
        folders = {seed: home / "run" / f"s{seed}" for seed in ("0", "1")}
        if not any((f / "spec.toml").exists() for f in folders.values()):
            return ("run", *words, "--seeds", "0-1", "--out", "run")
        for seed, folder in folders.items():
            if not (folder / "spec.toml").exists():
                return ("run", *words, "--seed", seed, "--out", f"run/s{seed}")
            if not (folder / "report.html").exists():
                return ("resume", f"run/s{seed}")
        return None

    return again


def scenarios(work: Path) -> list[Scenario]:
    """Return all of them; pictures for the cache are written below `work`."""
    run = ("run", "--seed", "3", *SMALL)
    hat = (*run, "--out", "run")
    against = [(*run, "--method", name, "--out", name) for name in ("joint", "random")]
    study = ("study", "small.toml", "--workers", "2", "--device", "cpu")
    tune = ("tune", "--method", "hat", "--trials", "14", "--workers", "1", "--seeds", "0", "--epochs", "1")
    tune += ("--set", "widths=[8]", "--device", "cpu", "--out", "search")
    signs = ("--benchmark", "sequence", "--set", f"file={_pictures(work)}", "--batch-size", "2048", "--epochs", "1")
    signs += ("--set", "widths=[8]", "--seed", "3", "--device", "cpu")
    made = [Scenario(f"run {name}", "run", run_or_resume("--method", name, *run[1:])) for name in MASKED]
    made += [
        Scenario("run seeds", "run", seeds_together(*SMALL)),
        Scenario("cache", "cache", run_or_resume(*signs), watched="cache", part=0.6),
        Scenario("report", "report", same("report", "run"), before=[hat]),
        Scenario(
            "report against",
            "report",
            same("report", "run", "--against", "joint", "--against", "random"),
            before=[hat, *against],
        ),
        Scenario("verify", "verify", same("verify", "run"), before=[hat], keeps=True),
        Scenario("study", "study", same(*study), files={"small.toml": STUDY}, several=True),
    ]
    if find_spec("optuna"):
        made.append(Scenario("tune", "tune", same(*tune), several=True))
    if find_spec("ray"):
        made.append(Scenario("ray", "ray", same(*study, "--on", "ray"), files={"small.toml": STUDY}, several=True))
    return made


def _pictures(work: Path) -> Path:
    """Write a set of own pictures in Parquet files; return the file that makes a sequence of them."""
    file = work / "pictures" / "signs.toml"
    shards, rows = 4, 10000
    labels = [int(label) for label in np.random.default_rng(0).permutation(np.arange(shards * rows) % 4)]
    for shard in range(shards):
        part = file.parent / "signs" / f"train-{shard:05d}-of-{shards:05d}.parquet"
        mine = labels[shard * rows : (shard + 1) * rows]
        write_parquet(part, mine, (1, 16, 16), names=list("abcd"), start=shard * rows)
    file.write_text(SEQUENCE)
    return file
