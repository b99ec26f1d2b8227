"""What the tracer knows about a tensor of the network: which unit stands at each of its entries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Value:
    """A tensor in the traced graph.

    ids:     the unit at every entry (full shape), None where there is no unit at all
    param:   the parameter that this is, or is a rearrangement of
    pos:     for such a value, the flat position in the parameter of every entry
    sources: the layers (weight and bias names) that wrote it, as long as only scaling and rearranging lie between:
             then gating those weights is the same as gating this value
    """

    shape: torch.Size
    ids: Tensor | None = None
    param: str | None = None
    pos: Tensor | None = None
    sources: frozenset[str] = frozenset()

    def unit_ids(self) -> Tensor:
        """Return ids with 0 (always on) where there is no unit."""
        return torch.zeros(1, dtype=torch.long).expand(self.shape) if self.ids is None else self.ids

    def with_ids(self, ids: Tensor | None, shape: torch.Size) -> Value:
        """Return the same tensor with other units, no longer a parameter's rearrangement."""
        return replace(self, ids=ids, shape=shape, param=None, pos=None)


def expand_tail(ids: Tensor, shape: torch.Size, tail: int) -> Tensor:
    """Repeat ids, constant over the last `tail` axes, to `shape`, which differs in those axes only."""
    for axis in range(ids.ndim - tail, ids.ndim):
        ids = ids.narrow(axis, 0, 1)
    return ids.expand(shape)
