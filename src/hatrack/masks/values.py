"""What the walk knows about one tensor of the network: the unit that stands at each of its entries.

A value is one of three things: units (`ids`), a parameter or a rearrangement of one (`param`), or neither (the
network's input, a constant).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fx import Node

from hatrack.masks.unions import ALWAYS_ON, compact

if TYPE_CHECKING:
    from hatrack.masks.ledger import Occasion


@dataclass(frozen=True)
class Value:
    """A tensor in the traced graph.

    ids      the unit at every entry (full shape); None where there are no units
    param    the parameter that this is, or is computed from entry by entry
    pos      for such a value, the flat position in the parameter of every entry; None: the parameter as it stands
    scaled   for such a value: a gate on the parameter is a gate on this (only rearranged and scaled)
    writers  the parameters that wrote it, as long as only scaling and rearranging lie between: a gate on those
             is a gate on this
    origins  the nodes from whose values alone this one is computed, unit by unit: with zeros there, a closed unit
             holds the same here whatever its parameters are
    zeros    the nodes where zeros in a closed unit are zeros here
    reached  whether it depends on the network's input
    known    a constant that can be looked at
    """

    shape: torch.Size
    ids: Tensor | None = None
    param: str | None = None
    pos: Tensor | None = None
    scaled: bool = True
    writers: frozenset[Occasion] = frozenset()
    origins: frozenset[Node] = frozenset()
    zeros: frozenset[Node] = frozenset()
    reached: bool = False
    known: Tensor | None = None

    def unit_ids(self) -> Tensor:
        """Return ids, with "always on" everywhere when there are no units."""
        return torch.zeros(1, dtype=torch.long).expand(self.shape) if self.ids is None else self.ids

    def positions(self) -> Tensor:
        """Return pos, written out."""
        return torch.arange(self.shape.numel()).view(self.shape) if self.pos is None else self.pos

    @property
    def carries(self) -> bool:
        """Whether any entry belongs to a unit."""
        return self.ids is not None and bool((compact(self.ids) != ALWAYS_ON).any())


def expand_tail(ids: Tensor, shape: torch.Size, tail: int) -> Tensor:
    """Repeat ids, constant over the last `tail` axes, to `shape`, which differs in those axes only."""
    for axis in range(ids.ndim - tail, ids.ndim):
        ids = ids.narrow(axis, 0, 1)
    return ids.expand(shape)
