"""Work done in a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import sleep

import torch

from hatrack import HatrackError

HOPELESS = 20  # seconds after which a child is taken to hang


def in_a_child(work: Callable[[], bool]) -> bool | None:
    """Return what a forked child found; None where it was refused."""
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            torch.set_num_threads(1)  # OpenMP's threads are not in the child
            code = 0 if work() else 1
        except HatrackError:
            code = 2
        finally:
            os._exit(code)
    for _ in range(100 * HOPELESS):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return {0: True, 1: False, 2: None}[os.waitstatus_to_exitcode(status)]
        sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
