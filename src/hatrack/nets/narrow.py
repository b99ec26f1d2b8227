"""A network of open units alone: closed ones are not computed, instead of being multiplied by 0.

Layers read and write fewer units when their weights are cut down to the rows and columns that open units use, and the
network's forward() stays as it is: cut tensors stand in for its own. Whether that comes to the same is not derived, but
tried on the network with its example; where it does not (a mean over all units, a reshape to a fixed number of them),
there is no narrow form, and gates do the work. Sums over units leave out zeros, so that answers agree to rounding, and
dropout draws for fewer units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from hatrack.masks.slicing import taken
from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import ON, STATISTICS, layer_of
from hatrack.modes import evaluating, untouched
from hatrack.nets.model import Model

Cut = Sequence[Tensor | None]  # what is kept along each axis; None: all

CLOSE = 1e-4  # of the largest feature: rounding stays far below, a missing unit above


class Narrow:
    """The model with some units open; `open` is a boolean vector over all units."""

    def __init__(self, model: Model, open: Tensor) -> None:
        self._model = model
        self._cuts: dict[str, Cut] = {}
        units = model.units
        for name, used in units.used(open.float()).items():
            cut = _cut(used > 0)
            if cut is None:
                continue
            layer = layer_of(name)
            self._cuts[name] = cut
            norm = isinstance(model.net.get_submodule(layer), _BatchNorm)
            for statistic in STATISTICS if norm else ():
                self._cuts[f"{layer}.{statistic}" if layer else statistic] = cut
        features = compact(units.features).to(open.device)
        self._shape = units.features.shape
        self._features = _cut((features == ON) | open[features.clamp_min(0)])

    def logits(self, x: Any, task: int) -> Tensor:
        """Return the logits of a task's own head."""
        with self._model.precision.products():
            logits: Tensor = self._model.heads[task](self.features(x, task))
        return logits

    def features(self, x: Any, task: int) -> Tensor:
        """Return the features of x for a task, with zeros where units are closed."""
        model = self._model
        own = {**model.tensors(), **model.private[task]}
        narrow = {name: taken(own[name], cut) for name, cut in self._cuts.items() if name in own}
        features = model.features(x, task, weights=narrow)
        if model.net.training:
            self._put_back(narrow, own)
        for axis, kept in enumerate(self._features or (), start=1):
            if kept is not None:
                whole = features.new_zeros(*features.shape[:axis], self._shape[axis - 1], *features.shape[axis + 1 :])
                features = whole.index_copy(axis, kept, features)
        return features

    @torch.no_grad()
    def _put_back(self, narrow: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        """Write running statistics, which a forward pass has moved, to where they were taken from."""
        for name, tensor in narrow.items():
            kept = self._cuts[name][0]
            if name.endswith(STATISTICS) and kept is not None:
                own[name].index_copy_(0, kept, tensor)


def narrowed(model: Model, open: Tensor, task: int) -> Narrow | None:
    """Return the model with some units open, if that comes to the same as gates do; None where it does not."""
    if not all(isinstance(model.net.get_submodule(layer_of(name)), _LAYERS) for name in model.units.uses):
        return None
    narrow = Narrow(model, open)
    with evaluating(model.net), torch.no_grad(), untouched(model.net), model.unrounded():
        gated = model.features(model.example, task, open)
        try:
            found = narrow.features(model.example, task)
        except Exception:  # whatever a forward() says to fewer units than it was written for
            return None
    if found.shape != gated.shape:
        return None
    return narrow if bool((found - gated).abs().max() <= CLOSE * gated.abs().max()) else None


_LAYERS = (nn.Linear, _ConvNd, _BatchNorm)


def _cut(used: Tensor) -> Cut | None:
    """Return what is kept along each axis, None for all; no cut where all is, or where the rest is no such product."""
    along = [used.movedim(axis, 0).reshape(size, -1).any(1) for axis, size in enumerate(used.shape)]
    if bool(used.all()) or prod(int(kept.sum()) for kept in along) != int(used.sum()):
        return None
    return [None if bool(kept.all()) else kept.nonzero().flatten() for kept in along]
