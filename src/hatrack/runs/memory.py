"""The most memory a run has held: of the GPU where it runs on one, else of this process."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Watches from when it is made. A process may carry out several runs, so that the peak before must not count."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        with suppress(OSError):  # where there is no such file, the peak is that of the whole process
            _RESET.write_text("5")  # Linux: forget the highest resident size so far

    def bytes(self) -> int:
        """Return the peak so far."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        for line in _STATUS.read_text().splitlines() if _STATUS.exists() else []:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
