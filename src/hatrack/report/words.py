"""How figures read on a page, in a table and in LaTeX: numbers in words."""

from __future__ import annotations

import math

from hatrack.measure import Measure, Scale

DASH = "–"


def known(value: object) -> float | None:
    """Return the value if it is a finite number, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value) + 0.0  # −0 becomes 0
    return None


def percent(value: object, decimals: int = 1) -> str:
    """Write a share as per cent, without needless decimals where it is exact, and as a dash where unknown."""
    number = known(value)
    if number is None:
        return DASH
    text = f"{100 * number:.{decimals}f}" if number not in (0, 1) else f"{100 * number:.0f}"
    return f"{text} %".replace("-", "−")


def score(value: object, scale: Scale, decimals: int = 1) -> str:
    """Write a score, or a difference of scores: shares as per cent, others as they are."""
    return percent(value, decimals) if scale.shares else plain(value)


def plain(value: object) -> str:
    """Write a figure of any size in three digits or so, and as a dash where unknown."""
    number = known(value)
    if number is None:
        return DASH
    return (f"{number:.3f}" if abs(number) < 10 else f"{number:.4g}").replace("-", "−")


def duration(seconds: object) -> str:
    """Write seconds as 14.2 s, 3 min 12 s or 2 h 05 min."""
    number = known(seconds)
    if number is None:
        return DASH
    if number < 120:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(memory: float | None) -> str:
    """Write bytes as B, KiB, MiB or GiB."""
    if memory is None:
        return DASH
    if memory < 2**10:
        return f"{memory:.0f} B"
    if memory < 2**20:
        return f"{memory / 2**10:.0f} KiB"
    mebi = memory / 2**20
    return f"{mebi:.0f} MiB" if mebi < 1024 else f"{mebi / 1024:.1f} GiB"


def whole(value: int | None) -> str:
    """Write a whole number with its thousands set apart by a thin space."""
    return DASH if value is None else f"{value:,}".replace(",", "\u2009")


def counted(number: int, noun: str) -> str:
    """Write 1 task, 5 tasks."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def number(value: float | None, measure: Measure) -> str:
    """Write a measure: four digits of a share, whole counts, time and bytes in fitting units."""
    if value is None:
        return DASH
    if measure.unit == "seconds":
        return duration(value)
    if measure.unit == "minutes":
        return f"{value:.1f} min"
    if measure.unit == "bytes":
        return size(value)
    return f"{value:.4f}" if measure.unit == "share" else f"{value:,.0f}"


def chance(p: float | None) -> str:
    """Write a p-value."""
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
