"""Work for a pool, in a file of its own: a spawned worker imports it by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hatrack.errors import HatrackError
from hatrack.studies.pool import Done


def double(item: int, tell: Callable[[Any], Any]) -> int:
    return 2 * item


def ask(item: str, tell: Callable[[Any], Any]) -> list[Any]:
    return [tell(f"{item}{i}") for i in range(3)]


def fail(item: str, tell: Callable[[Any], Any]) -> str:
    if item == "ours":
        raise HatrackError("asked for too much.")
    if item == "theirs":
        raise ZeroDivisionError("by zero,\nindeed")
    return item


def die_twice(item: Path, tell: Callable[[Any], Any]) -> int:
    """Be killed at the first two attempts; `item` is a file that counts them."""
    count = len(item.read_text()) if item.exists() else 0
    if count < 2:
        item.write_text("x" * (count + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return count


def die(item: int, tell: Callable[[Any], Any]) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def lose_the_gpu(item: int, tell: Callable[[Any], Any]) -> int:
    if item == 1:
        raise torch.AcceleratorError("an illegal memory access")
    return os.getpid()


def number(given: int) -> None:
    os.environ["WORKER"] = str(given)


def which(item: int, tell: Callable[[Any], Any]) -> str:
    tell("here")  # so that the other worker gets its share
    return os.environ["WORKER"]


def in_parts(item: int, tell: Callable[[Any], Any]) -> str:
    """Say that each of three parts is over."""
    for part in range(3):
        tell(Done((item, part)))
    return "whole"
