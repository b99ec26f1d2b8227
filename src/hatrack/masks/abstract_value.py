"""What the walk knows about one tensor of the network: the unit that stands at each of its entries.

A value is one of three things: units (`ids`), computed from parameters alone (`held`), or neither (the network's
input, a constant).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.fx import Node

from hatrack.masks.union_find import ALWAYS_ON, UnionFind, compact

if TYPE_CHECKING:
    from hatrack.masks.recorder import ParameterUse

NOTHING = -1  # in `pos`: this entry is not computed from the parameter


@dataclass(frozen=True)
class Held:
    """A parameter of `size` entries that a value is computed from, and which of them each entry of the value needs.

    pos      for every entry of the value, a group of the parameter's entries; None: the parameter as it stands
    groups   for every entry of the parameter (flat), the group it belongs to; None: each is a group of its own, by
             its place. The entries of a row that is divided by its own norm are one group
    scaled   a gate on the parameter is a gate on what is computed from it (only rearranged and scaled)
    """

    name: str
    size: int
    pos: Tensor | None = None
    groups: Tensor | None = None
    scaled: bool = True

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self.size if self.groups is None else int(self.groups.max()) + 1

    def positions(self, shape: torch.Size) -> Tensor:
        """Return pos, written out for a value of `shape`."""
        return torch.arange(self.size).view(shape) if self.pos is None else self.pos

    def moved(self, shape: torch.Size, move: Callable[[Tensor], Tensor], scaled: bool = True) -> Held:
        """Return it after its value of `shape` was rearranged by `move`."""
        return replace(self, pos=move(self.positions(shape)), scaled=self.scaled and scaled)

    def mixed(self, shape: torch.Size, *axes: int) -> Held:
        """Return it after every entry came to depend on all entries along `axes`; the shape stays."""
        pos, groups = self.positions(shape), torch.arange(self.size) if self.groups is None else self.groups
        joined = UnionFind()
        joined.fresh("", self.count)
        for axis in axes:
            there = pos.amax(axis, keepdim=True).expand(pos.shape)
            both = (pos != NOTHING) & (there != NOTHING)
            joined.merge(pos[both] + 1, there[both] + 1)
            pos = there
        return replace(self, pos=_renamed(joined, pos), groups=_renamed(joined, groups), scaled=False)


def _renamed(joined: UnionFind, groups: Tensor) -> Tensor:
    return joined.roots(compact(groups) + 1).expand(groups.shape) - 1


@dataclass(frozen=True)
class Value:
    """A tensor in the traced graph.

    ids      the unit at every entry (full shape); None where there are no units
    held     the parameters that this is computed from, where it is computed from parameters and constants alone
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
    held: tuple[Held, ...] = ()
    writers: frozenset[ParameterUse] = frozenset()
    origins: frozenset[Node] = frozenset()
    zeros: frozenset[Node] = frozenset()
    reached: bool = False
    known: Tensor | None = None

    def unit_ids(self) -> Tensor:
        """Return ids, with "always on" everywhere when there are no units."""
        return torch.zeros((), dtype=torch.long).expand(self.shape) if self.ids is None else self.ids

    def rearranged(self, shape: torch.Size, move: Callable[[Tensor], Tensor]) -> Value:
        """Return what `move` makes of a value computed from parameters."""
        return Value(shape, held=tuple(held.moved(self.shape, move) for held in self.held))

    def mixed(self, *axes: int) -> Value:
        """Return a value of the same shape, each entry of which depends on all entries along `axes`."""
        return Value(self.shape, held=tuple(held.mixed(self.shape, *axes) for held in self.held))

    @property
    def carries(self) -> bool:
        """Whether any entry belongs to a unit."""
        return self.ids is not None and bool((compact(self.ids) != ALWAYS_ON).any())


def together(shape: torch.Size, values: Iterable[Value], scaled: bool = False) -> Value:
    """Return a value computed entry by entry from several others, which broadcast to its shape."""
    held = [h.moved(v.shape, lambda pos: pos.expand(shape), scaled) for v in values for h in v.held]
    return Value(shape, held=tuple(held))


def expand_tail(ids: Tensor, shape: torch.Size, tail: int) -> Tensor:
    """Repeat ids, constant over the last `tail` axes, to `shape`, which differs in those axes only."""
    for axis in range(ids.ndim - tail, ids.ndim):
        ids = ids.narrow(axis, 0, 1)
    return ids.expand(shape)
