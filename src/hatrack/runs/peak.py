"""The most memory in use while a run went on: of the GPU where it runs on one, else of this process.

Neither knows whose memory it is: what runs side by side in one process hold counts for each of them.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

import torch

from hatrack.learn.machine.cpu.mode import give_back

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Watches while its context is open. A process may carry out several runs: a peak before must not count."""

    _watching: ClassVar[list[Peak]] = []

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0  # the peak when another run last began

    def __enter__(self) -> Self:
        for other in self._watching:
            other._before = other.bytes()
        self._watching.append(self)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return self
        give_back()  # else what an earlier run has freed would count
        with suppress(OSError):  # where there is no such file, the peak is that of the whole process
            _RESET.write_text("5")  # Linux: forget the highest resident size so far
        return self

    def __exit__(self, *_: object) -> None:
        self._watching.remove(self)

    def bytes(self) -> int:
        """Return the peak so far."""
        return max(self._before, self._since())

    def _since(self) -> int:
        """Return the peak since a run last began."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        for line in _STATUS.read_text().splitlines() if _STATUS.exists() else []:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
