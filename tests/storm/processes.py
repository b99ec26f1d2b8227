"""Start a hatrack command, as a process of its own from the very start or forked off a server; find what it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 900.0  # seconds after which a command is said to hang


def environment(work: Path) -> dict[str, str]:
    """Return the environment of all processes of the storm: one thread, no GPU, nothing kept outside `work`."""
    paths = [str(HERE / "hook"), str(ROOT / "src"), str(ROOT)]
    return {key: value for key, value in os.environ.items() if key not in ("HATRACK_DATA", "RAY_ADDRESS")} | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_TMPDIR": str(work / "ray"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


class Process:
    """A command under way."""

    def __init__(self, pid: int, wait: Callable[[], int]) -> None:
        self.pid = pid
        self._code: int | None = None
        self._ended = threading.Thread(target=self._await, args=(wait,), daemon=True)
        self._ended.start()

    def wait(self, seconds: float) -> int | None:
        """Return the exit code, or minus the signal that ended it; None if it goes on for longer."""
        self._ended.join(seconds)
        return self._code

    def _await(self, wait: Callable[[], int]) -> None:
        self._code = wait()


class Fresh:
    """Starts the real command."""

    def __init__(self, work: Path) -> None:
        self._environment = environment(work)

    def start(self, words: Sequence[str], folder: Path, extra: Mapping[str, str], log: Path) -> Process:
        """Start the command in a folder."""
        with log.open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "hatrack.cli", *words],
                cwd=folder,
                env=self._environment | extra,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        return Process(process.pid, process.wait)


class Forked:
    """Starts commands as children of a server; one at a time."""

    def __init__(self, work: Path) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.storm.server"],
            cwd=ROOT,
            env=environment(work),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(work / "server.log").open("ab"),
            text=True,
        )

    def start(self, words: Sequence[str], folder: Path, extra: Mapping[str, str], log: Path) -> Process:
        """Start the command in a folder."""
        assert self._server.stdin is not None
        request = {"words": list(words), "folder": str(folder), "environment": dict(extra), "log": str(log)}
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return Process(self._number(), self._number)

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def _number(self) -> int:
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())


def workers(pid: int) -> list[int]:
    """Return the processes below one that carry out runs: Python's spawned ones, or Ray's."""
    return [p for p in _below(pid) if _is_worker(_said(p))]


def strays(mark: str) -> dict[int, str]:
    """Return the living processes that were started with `mark` in their environment, and what they are."""
    return {pid: _said(pid) for pid in _all() if mark.encode() in _read(pid, "environ")}


def is_rays(what: str) -> bool:
    """Tell the processes by which Ray keeps a cluster together; that one outlives a killed driver is Ray's affair."""
    return not _is_worker(what) and ("ray::" in what or "/ray/" in what)


def _is_worker(what: str) -> bool:
    return "spawn_main" in what or what.startswith(("ray::IDLE", "ray::_carry_out"))


def _said(pid: int) -> str:
    """Return the command line of a process."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def send(pid: int, number: int) -> None:
    """Send a signal to a process that this storm started, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _below(pid: int) -> list[int]:
    parents = {p: int(said[1]) for p in _all() if len(said := _read(p, "stat").rpartition(b")")[2].split()) > 1}
    found: list[int] = []
    level = {pid}
    while level := {p for p, parent in parents.items() if parent in level}:
        found += sorted(level)
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
