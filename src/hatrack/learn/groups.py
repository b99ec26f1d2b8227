"""What an optimiser's callable is given, and what moves gates that it does not take.

net    weights that tasks share, and whatever else a method trains
gates  what decides which parts a task uses: embeddings, scores of masks
heads  the heads that are trained
norms  the task's own scales and shifts of norms

How far a gate moves in a task is the method's affair: its slopes are compensated and its range is fixed, while a rate
that suits weights depends on the optimiser (Adam's steps are as long as its rate, SGD's as their gradients). So gates
that the user's optimiser does not hold are moved beside it by the method's own, at the method's own rate; where the
user's rates fall, so does that, in the same proportion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsIndex, overload

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from hatrack.errors import unknown
from hatrack.masks.unitmap import layer_of
from hatrack.methods.base import Method

GROUPS = ("net", "gates", "heads", "norms")
NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


class Groups(list[Tensor]):
    """All that is trained but the gates, as the list that torch's optimisers take; by name, each group as a list.

    Every group is there, and may be empty. `gates`: whether the list has them too.
    """

    def __init__(self, named: Mapping[str, list[Tensor]], gates: bool = False) -> None:
        super().__init__(tensor for name in GROUPS if gates or name != "gates" for tensor in named[name])
        self._named = dict(named)

    @overload
    def __getitem__(self, key: SupportsIndex) -> Tensor: ...
    @overload
    def __getitem__(self, key: slice | str) -> list[Tensor]: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Tensor | list[Tensor]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self._named:
            raise unknown("group of parameters", key, GROUPS)
        return list(self._named[key])


def grouped(method: Method, listed: bool = False) -> Groups:
    """Return what the method trains in this phase; `listed`: gates among it."""
    gates, net = method.gates(), method.model.net
    named: dict[str, list[Tensor]] = {group: [] for group in GROUPS}
    for name, tensor in method.trainable().items():
        kind, _, inner = name.partition("/")
        if name in gates:
            home = "gates"
        elif kind in ("head", "heads"):
            home = "heads"
        elif kind == "private" and isinstance(net.get_submodule(layer_of(inner)), NORMS):
            home = "norms"
        else:
            home = "net"
        named[home].append(tensor)
    return Groups(named, listed)


def beside(method: Method, optimizer: Optimizer) -> Optimizer | None:
    """Return the method's own optimiser for the gates that `optimizer` leaves out; None where there are none."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    gates = method.gates()
    left = [tensor for name, tensor in method.trainable().items() if name in gates and id(tensor) not in held]
    return method.optimizer(left) if left else None
