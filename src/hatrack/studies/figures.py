"""A paper's figure, and whether ours agrees with it.

The band around a figure is twice the paper's standard deviation to either side, and never less than what the study
file allows with `within` (papers print two digits, and many give no deviation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hatrack.errors import HatrackError

DEVIATIONS = 2.0
MOST = 1e15  # of a figure: beyond it no picture can be drawn


@dataclass(frozen=True)
class Figure:
    """mean ± std as the paper prints it; `half` is half the width of the band."""

    mean: float
    std: float | None
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def verdict(self, ours: float) -> str:
        """Say where our mean lies: within, above or below the band."""
        slack = 1e-9  # so that a mean on the very edge does not depend on rounding
        if ours < self.low - slack:
            return "below"
        return "above" if ours > self.high + slack else "within"

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.std is None else f"{self.mean:g} ± {self.std:g}"


def figure(given: Any, within: float, where: str) -> Figure:
    """Read 0.66 or [0.66, 0.01] (mean, standard deviation)."""
    numbers = given if isinstance(given, list) else [given]
    if not 1 <= len(numbers) <= 2 or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        raise HatrackError(f"{where} must be a mean, or [mean, standard deviation], got {given!r}.")
    if not all(abs(n) <= MOST for n in numbers) or numbers[-1] < 0 < len(numbers) - 1:
        raise HatrackError(f"{where} must be at most {MOST:g}, its standard deviation at least 0, got {given!r:.99}.")
    std = float(numbers[1]) if len(numbers) == 2 else None
    return Figure(float(numbers[0]), std, max(within, DEVIATIONS * (std or 0.0)))
