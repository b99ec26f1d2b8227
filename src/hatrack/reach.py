"""How far inputs may lie from those that a task was trained on before they must mean something else."""

from __future__ import annotations

from math import inf

NEAR = 0.1  # by how much floats may leave [0, 1] where bytes were learned: resizing a picture overshoots
FAR = 10  # ranges by which floats may lie outside of those learned: a sensor may go wild


def reach(least: float, most: float) -> tuple[float, float]:
    """Return between which values floats may lie that were learned from `least` to `most`."""
    far = FAR * max(most - least, abs(least), abs(most))
    return (least - far, most + far) if far > 0 else (-inf, inf)


def unit(least: float, most: float) -> bool:
    """Whether floats that were learned lie where bytes come to lie, so that bytes may be given in their place."""
    return least >= -NEAR and most <= 1 + NEAR
