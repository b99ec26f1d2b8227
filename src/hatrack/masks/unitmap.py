"""The unit map: which units index every parameter, and where each unit is read.

A *site* is a set of units that live and die together (the filters of a convolution, the channels of a residual
stream). A *use* of a parameter says, for each of its entries, which units must be on for the entry to matter:

    used(entry) = max over uses of min over units of gate(unit)

With cumulative gates this is HAT's lock, min(a_out, a_in), for any network; weight tying gives two uses.
A *read* is a place where a layer mixes units: its input is multiplied by the gate there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor

# Two entries are put behind every gate vector: index −1 is always on, index −2 never.
ON = -1
OFF = -2

STATISTICS = ("running_mean", "running_var")  # buffers of a norm: one entry a unit


@dataclass(frozen=True)
class Site:
    """Units start … start+size−1: who writes them (modules in forward order) and who reads them."""

    name: str
    start: int
    size: int
    writers: tuple[str, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True)
class Use:
    """One way in which a parameter enters the computation: unit indices (or ON, OFF) that broadcast to its shape."""

    units: tuple[Tensor, ...]


@dataclass(frozen=True)
class Read:
    """A place to gate: `units` broadcasts to what is gated.

    `module` names a layer whose input is gated; a module has a read for each of its calls, in forward order, or none.
    Otherwise `parameter` names a weight (or bias) that is multiplied instead, which is the same for a layer whose
    input cannot be reached.
    """

    units: Tensor
    module: str | None = None
    parameter: str | None = None


@dataclass(frozen=True)
class Note:
    """Something handled conservatively: where, what was done, and why."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where} {self.what}"


@dataclass
class UnitMap:
    """What `trace` found in a network."""

    size: int
    sites: list[Site]
    uses: dict[str, list[Use]]
    shapes: dict[str, torch.Size]
    reads: list[Read]
    features: Tensor  # the unit at every entry of a sample's features
    norms: dict[str, str] = field(default_factory=dict)  # module → kind, for layers with running statistics
    statistics: dict[str, Tensor] = field(default_factory=dict)  # module → the unit of every channel of these
    notes: list[Note] = field(default_factory=list)
    corrected: list[str] = field(default_factory=list)  # parameters that it was wrong about
    checked: bool = False  # whether it was tried on the network itself (see check.py)

    def used(self, gates: Tensor) -> dict[str, Tensor]:
        """Return, for every mapped parameter, max over uses of min over its units' gates, at its full shape.

        Parameters that the forward pass uses but no unit indexes count as used (1).
        """
        extended = torch.cat([gates, gates.new_tensor([0.0, 1.0])])

        def least(use: Use) -> Tensor:
            return reduce(torch.minimum, (extended[units.to(gates.device)] for units in use.units))

        return {n: reduce(torch.maximum, map(least, uses)).expand(self.shapes[n]) for n, uses in self.uses.items()}

    @property
    def flat_features(self) -> Tensor:
        """The unit at every entry of a sample's features, as a head reads them."""
        return self.features.reshape(-1)

    def by_site(self, values: Tensor) -> Iterator[tuple[Site, Tensor]]:
        """Yield each site with its part of a vector over all units."""
        for site in self.sites:
            yield site, values[site.start : site.start + site.size]


def layer_of(parameter: str) -> str:
    """Return the module path that holds a parameter, '' for the network itself."""
    return parameter.rpartition(".")[0]
