"""A paper's figure, and whether ours agrees with it.

The band around a figure is twice the paper's standard deviation to either side, and never less than what the study
file allows with `within` (papers print two digits, and many give no deviation). A figure of another experiment than
ours (other hardware, another size) has no band: only order and sign are compared (see `order`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hatrack.errors import HatrackError, unknown

DEVIATIONS = 2.0
MOST = 1e15  # of a figure: beyond it no picture can be drawn
ORDER = "order"  # what `within` says where there is no band

Within = float | None


@dataclass(frozen=True)
class Figure:
    """mean ± std as the paper prints it; `half` is half the width of the band, None without one."""

    mean: float
    std: float | None
    half: Within

    @property
    def band(self) -> tuple[float, float] | None:
        """The ends of the band."""
        return None if self.half is None else (self.mean - self.half, self.mean + self.half)

    def verdict(self, ours: float) -> str:
        """Say where our mean lies: within, above or below the band; nothing where there is none."""
        if self.band is None:
            return ""
        low, high = self.band
        slack = 1e-9  # so that a mean on the very edge does not depend on rounding
        if ours < low - slack:
            return "below"
        return "above" if ours > high + slack else "within"

    def __str__(self) -> str:
        return _said(self.mean) if self.std is None else f"{_said(self.mean)} ± {_said(self.std)}"


def _said(number: float) -> str:
    """Write a figure as it is printed: whole ones, such as a count of parameters, with all their digits."""
    return f"{number:,.0f}" if number.is_integer() and abs(number) >= 1e6 else f"{number:g}"


def figure(given: Any, within: Within, where: str) -> Figure:
    """Read 0.66, [0.66, 0.01] (mean, standard deviation) or {mean = 0.66, std = 0.01, within = 0.02}."""
    if isinstance(given, Mapping):
        for key in given:
            if key not in ("mean", "std", "within"):
                raise unknown(f"key of {where}", key, ("mean", "std", "within"))
        within = half(given["within"], f"{where}.within") if "within" in given else within
        given = [given[key] for key in ("mean", "std") if key in given]
    numbers = given if isinstance(given, list) else [given]
    if not 1 <= len(numbers) <= 2 or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        raise HatrackError(f"{where} must be a mean, or [mean, standard deviation], got {given!r}.")
    if not all(abs(n) <= MOST for n in numbers) or numbers[-1] < 0 < len(numbers) - 1:
        raise HatrackError(f"{where} must be at most {MOST:g}, its standard deviation at least 0, got {given!r:.99}.")
    std = float(numbers[1]) if len(numbers) == 2 else None
    return Figure(float(numbers[0]), std, None if within is None else max(within, DEVIATIONS * (std or 0.0)))


def half(given: Any, where: str) -> Within:
    """Read the least half width of a band: a number, or "order", which is None."""
    if given == ORDER:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MOST:
        raise HatrackError(f"{where} must be a number from 0 to {MOST:g} or {ORDER!r}, got {given!r:.99}.")
    return float(given)
