"""What cross-head importance (CHI) adds to SPG's importance: its four figures (SPG, appendix A.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

import torch
from torch import Tensor

from hatrack.errors import HatrackError

Importance = Mapping[str, Tensor]

FIGURES: Final = ("F-each", "G-each", "F-total", "G-total")
CHI = TypedDict("CHI", {"F-each": float, "G-each": float | None, "F-total": float, "G-total": float | None})


def chi(own: Importance, cross: Sequence[Importance], before: Importance) -> CHI:
    """Return how often, and by how much, CHI's importance is above the task's own and above the accumulated one.

    `own` is γ^{t,t}, `cross` the γ^{t,τ} of the earlier heads τ < t, `before` γ^{≤t−1}, each by parameter name; all
    parameters are pooled. With c = max_τ γ^{t,τ}: F-each is the share of entries with c > γ^{t,t}, G-each the mean of
    c − γ^{t,t} over those; F-total and G-total are the same against γ^{≤t−1}. A gap is None where it never happens.
    """
    if not cross:
        raise HatrackError("CHI's figures exist from the second task on: there is no earlier head yet.")
    for name in own:
        if name not in before or any(name not in head for head in cross):
            raise HatrackError(f"CHI's figures need every importance for parameter {name!r}; one lacks it.")
    highest = _pooled({name: torch.stack([head[name] for head in cross]).amax(0) for name in own}, own)
    each = _overwrites(highest, _pooled(own, own))
    total = _overwrites(highest, _pooled(before, own))
    return {"F-each": each[0], "G-each": each[1], "F-total": total[0], "G-total": total[1]}


def _pooled(importance: Importance, names: Importance) -> Tensor:
    return torch.cat([importance[name].flatten().double() for name in names])


def _overwrites(highest: Tensor, held: Tensor) -> tuple[float, float | None]:
    gaps = (highest - held)[highest > held]
    return len(gaps) / len(held), float(gaps.mean()) if len(gaps) else None
