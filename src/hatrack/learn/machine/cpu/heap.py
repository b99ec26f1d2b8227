"""Memory that stays with the process between steps.

A step frees tensors of tens of megabytes, and the next one asks for as many. Where they lie at the end of the heap,
glibc hands them to the system in between, which then clears every page anew: up to half as much again as a step takes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache

TRIM, MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
KEPT = 2**29  # bytes at the end of the heap that are not handed back
LARGEST = 2**25  # bytes of a block that lies in the heap: more is not allowed


@cache
def keep_freed_memory() -> None:
    """Let glibc keep what is freed, once a process; nothing elsewhere, or where the user has settings of malloc's."""
    theirs = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if sys.platform != "linux" or theirs:
        return
    with suppress(OSError, AttributeError):  # a C library without these settings
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM, KEPT)
        mallopt(MMAP, LARGEST)
