"""What to say when the machine had too little of something: disk or memory. Nothing that was saved is lost by it."""

from __future__ import annotations

import sys

from hatrack import atomic


def ran_out(error: BaseException) -> str | None:
    """Say what ran out, and where; None where the error is another one."""
    if isinstance(error, OSError) and error.errno in atomic.FULL:
        return f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return "memory ran out"
    torch = sys.modules.get("torch")  # an error of torch's comes from a torch that is there
    return "the GPU's memory ran out" if torch and isinstance(error, torch.OutOfMemoryError) else None
