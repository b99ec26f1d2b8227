"""A process that has everything imported and forks a child for each command, so that Python's start is paid once.

A request is a line of JSON: words, folder, environment, log. The answers are two lines: the child's id, its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import sitecustomize
import torch

import hatrack.studies.execute  # noqa: F401
from hatrack.cli import main


def warm_up() -> None:
    """Do once what children will do, so that they find it imported."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        run = str(Path(folder) / "run")
        words = ["run", "--epochs", "1", "--set", "widths=[8]", "--device", "cpu", "--out", run]
        assert main(words) == main(["verify", run]) == main(["report", run]) == 0


def be_the_child(request: dict[str, Any]) -> None:
    """Carry out one command and end."""
    code = 99
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        sitecustomize.install()
        code = main(request["words"])
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()  # into the log: else nobody would know what it was
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Answer requests until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the storm's affair, which closes the line then
    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            be_the_child(json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
