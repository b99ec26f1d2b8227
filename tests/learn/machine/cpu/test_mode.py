"""Memory that a step frees stays with the process, so that the next step need not have it cleared anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Several tensors of some megabytes, all freed at once: what the C library gives back to the system.
STEPS = """
from resource import RUSAGE_SELF, getrusage
import torch
from hatrack.learn.machine.cpu.mode import keep_freed_memory
keep_freed_memory()
def step():
    return [torch.ones(5_000_000) for _ in range(8)] and None
for _ in range(3):
    step()
before = getrusage(RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_pages_are_asked_for_once_unless_the_user_has_settings_of_malloc() -> None:
    def faults(**more: str) -> int:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
        done = subprocess.run([sys.executable, "-c", STEPS], env={**clean, **more}, capture_output=True, check=True)
        return int(done.stdout)

    assert faults() < 1000
    assert faults(MALLOC_TRIM_THRESHOLD_="131072") > 10_000
