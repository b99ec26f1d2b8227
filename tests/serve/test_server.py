"""The command itself, as a process: its line, its end, its refusals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hatrack import cli
from hatrack.serve.server import listening

from .asking import once
from .exports import DIGITS, TAGS

SERVE = [sys.executable, "-m", "hatrack.cli", "serve"]


@contextmanager
def process(
    folder: Path, code: str | None = None, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the command (or `code` that calls it) on a free port."""
    command = [sys.executable, "-c", code] if code else SERVE
    command += [str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as started:
        try:
            assert started.stdout is not None
            line = started.stdout.readline()
            assert line, started.communicate()[1]
            yield started, int(line.rpartition(":")[2].partition(";")[0])
        finally:
            started.kill()


SLOW = """
import sys, time
from hatrack import cli
from hatrack.serve.network import Network
run = Network.run
Network._tried = lambda self: 64
Network.run = lambda self, inputs: print("begun", flush=True) or time.sleep(1) or run(self, inputs)
sys.exit(cli.main(["serve", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_requests_under_way_are_answered_before_it_ends(exports: Path, number: signal.Signals) -> None:
    with process(exports, code=SLOW) as (started, port):
        found: list[tuple[int, Any]] = []
        asked = [{"task": made.name, "inputs": made.samples(1).tolist()} for made in (TAGS, DIGITS)]
        threads = [threading.Thread(target=lambda ask=ask: found.append(once(port, ask))) for ask in asked]
        for thread in threads:
            thread.start()
        assert started.stdout is not None
        assert [started.stdout.readline() for _ in threads] == ["begun\n"] * 2
        started.send_signal(number)
        for thread in threads:
            thread.join(30)
        assert [status for status, _ in found] == [200] * 2
        assert started.wait(30) == 0
        assert started.stderr is not None
        assert started.stderr.read() == ""
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port))


def test_it_needs_no_torch(exports: Path) -> None:
    code = """
import sys
sys.modules["torch"] = None
from hatrack import cli
sys.exit(cli.main(["serve", *sys.argv[1:]]))
"""
    with process(exports, code=code) as (_, port):
        assert once(port, {"task": DIGITS.name, "inputs": DIGITS.samples(1).tolist()})[0] == 200


def test_small_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off where the socket names its protocol; else each answer takes 40 ms longer."""
    for host in ("127.0.0.1", "localhost"):
        with listening(host, 0) as opened:
            assert opened.proto == socket.IPPROTO_TCP


def test_nothing_is_told_to_anybody_and_nothing_left_in_the_users_folder(exports: Path, tmp_path: Path) -> None:
    """Since 1.29 onnxruntime keeps what it is to send in a folder of the user's."""
    before = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    with process(exports, env=before | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}) as (_, port):
        assert once(port, {"task": DIGITS.name, "inputs": DIGITS.samples(1).tolist()})[0] == 200
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["onnxruntime", "starlette.applications", "uvicorn", "PIL.Image"])
def test_a_missing_package_is_named_in_one_line(
    exports: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["serve", str(exports)]) == 2
    said = capsys.readouterr().err
    assert "serving needs" in said
    assert module in said
    assert "pip install 'hatrack[serve]'" in said
    assert said.count("\n") == 1


def test_what_cannot_be_served_is_refused_in_one_line(
    exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = str(taken.getsockname()[1])
        for arguments, code, said in (
            ([str(tmp_path)], 2, "holds no exported task"),
            ([str(exports), "--int8"], 2, "has no model.int8.onnx"),
            ([str(exports), "--port", busy], 2, f"127.0.0.1:{busy} cannot be opened"),
            ([str(exports), "--host", "256.1.1.1"], 2, "cannot be opened"),
            ([str(exports), "--port", "70000"], 2, "--port"),
            ([str(exports), "--timeout", "0"], 2, "--timeout"),
        ):
            assert cli.main(["serve", *arguments]) == code
            line = capsys.readouterr().err
            assert said in line
            assert line.count("\n") == 1


def test_an_edited_network_is_refused_as_changed(
    exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "tags"
    place.mkdir()
    (place / "card.json").write_bytes((exports / "tags" / "card.json").read_bytes())
    (place / "model.onnx").write_bytes((exports / "tags" / "model.onnx").read_bytes() + b"\n")
    assert cli.main(["serve", str(tmp_path)]) == 1
    assert "SHA-256 differs" in capsys.readouterr().err


def test_help_is_neat_in_80_columns() -> None:
    narrow = os.environ | {"COLUMNS": "80"}
    said = subprocess.run([*SERVE, "--help"], env=narrow, capture_output=True, text=True, check=True)
    assert max(map(len, said.stdout.splitlines())) <= 80
    for option in ("--host", "--port", "--max-body", "--timeout", "--int8"):
        assert option in said.stdout
