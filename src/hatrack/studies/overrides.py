"""Levels of settings over one another: what stands later wins, under either of a setting's names.

A setting of the method, the net or the benchmark may be given bare (`widths`) or with its part before it
(`net.widths`). Whose setting a bare name is turns out only when the run's spec is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hatrack.runs.spec import TABLES


def merged(*levels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of all levels; a setting that a later level holds is taken from there."""
    found: dict[str, Any] = {}
    for level in levels:
        found = {**{key: value for key, value in found.items() if not holds(level, key)}, **level}
    return found


def holds(level: Mapping[str, Any], key: str) -> bool:
    """Say whether a level sets what `key` sets."""
    part, dot, name = key.partition(".")
    names = {key, name} if dot and part in TABLES else {key, *(f"{part}.{key}" for part in TABLES)}
    return not names.isdisjoint(level)
