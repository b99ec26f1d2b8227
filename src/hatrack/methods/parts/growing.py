"""Growing by itself: settings of methods whose tasks each take a part of the network, and which sites are short.

short   a site that a layer writes of whose weights less than `grow_below` is free
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hatrack.masks.unitmap import Site
from hatrack.measure.shares import Share
from hatrack.methods.hyper import hyper


@dataclass
class Growing:
    """Has the network widened before a task that finds little room (docs/growth.md)."""

    grow: float = hyper(
        0.0, "share of units by which sites that are short of free weights are widened before a task; 0: never", low=0.0
    )
    grow_below: float = hyper(0.1, "share of a layer's weights that must be free, where grow is set", low=0.0, high=1.0)
    budget: int = hyper(0, "parameters that the network may grow to, where grow is set; 0: any number", low=0)


def short_sites(sites: Sequence[Site], taken: Share | None, below: float) -> list[Site]:
    """Return the sites that are written by a layer with too little room."""
    if taken is None:
        return []
    scarce = {_module(layer) for layer, share in taken["layers"].items() if 1 - share < below}
    return [site for site in sites if scarce & set(site.writers)]


def _module(layer: str) -> str:
    """Return the name that a site's writer has: a layer's, without what parametrizations put into it."""
    return layer.partition(".parametrizations")[0]
