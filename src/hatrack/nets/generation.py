"""A network as wide as it was when tasks were learned, out of the tensors of the wider one of now.

Those tasks are answered at that width: the same sums over the same numbers in the same order, whatever norms and means
over units make of more of them. Tensors are taken anew before every answer, so that nothing is kept that could differ.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hatrack.features import Features
from hatrack.masks.gates import Gating
from hatrack.masks.widen import Places
from hatrack.swap import Slots, copied

if TYPE_CHECKING:
    from hatrack.nets.model import Model


@dataclass
class Generation:
    """`tasks`: how many were finished when the network was widened; those since the last widening are of this width."""

    tasks: int
    model: Model
    places: Places

    @torch.no_grad()
    def follow(self, current: Model) -> Model:
        """Return the model of that width with the values that its tensors have now."""
        model, now = self.model, current.tensors()
        model.precision, model.answers = current.precision, current.answers
        for name, tensor in model.tensors().items():
            tensor.data.copy_(self.places.taken(name, now[name]))
        return model

    def spread(self, current: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values at entries of that width as ones at those of now, with zeros, or False, at new ones."""
        return {
            name: self.places.spread(name, value, value.new_zeros(current[name].shape))
            for name, value in values.items()
        }

    def taken(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return of values at the entries of now those at the entries of that width."""
        return {name: self.places.taken(name, value) for name, value in values.items()}


def as_it_is(model: Model) -> Model:
    """Return a model of a copy of the network, which keeps its width; heads and tasks' own tensors are shared."""
    units = model.units  # that of the copy as well
    made = copy.copy(model)
    made.net = copied(model.net).eval()
    made.picked = Features(made.net, model.picked.pick)
    made._slots = Slots(made.net)
    made.units, made.gating, made.generations = units, Gating(made.net, units), []
    return made
