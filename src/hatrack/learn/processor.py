"""The processor's name: libraries choose kernels, and so the order of sums, by its maker and model.

Two processors of one instruction set may therefore give logits that differ in the last bits.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
KEYS = ("vendor_id", "model name", "cpu family", "model", "CPU implementer", "CPU part")  # the last two on ARM


@cache
def processor() -> str:
    """Return instruction set, maker and model of this machine's processor."""
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *(_from_linux() or [platform.processor()])])


def _from_linux() -> list[str]:
    """Return what the system says of the first core; nothing where it is not Linux."""
    try:
        first = CPUINFO.read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    return [said[key] for key in KEYS if key in said]
