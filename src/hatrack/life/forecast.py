"""How many more tasks a learner's network has room for: what measure/forecast.py makes of its capacity."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from hatrack.errors import HatrackError
from hatrack.learn.capacity import taken_weights
from hatrack.masks.unitmap import layer_of
from hatrack.measure.forecast import LITTLE, Range, ahead, appetites, fitting
from hatrack.measure.shares import Share
from hatrack.nets.widening import Widening

if TYPE_CHECKING:
    from hatrack.learn.core import Core


@dataclass(frozen=True)
class Forecast:
    """How many more tasks of the size seen so far fit: that begin with `little` of every layer's weights free.

    free   the share of weights that is free, in all and layer by layer
    more   tasks that fit, the network as it is
    grown  tasks that fit if all that can be widened gets the share `share` of units more now; None where nothing can
    """

    tasks: int
    free: Share
    more: Range
    share: float
    grown: Range | None
    little: float = LITTLE

    def __str__(self) -> str:
        layers = ", ".join(f"{layer} {left:.1%}" for layer, left in self.free["layers"].items())
        said = f"After {self.tasks} tasks {self.free['total']:.1%} of the weights are free ({layers}). "
        said += f"Tasks that still fit, with {self.little:.0%} of every layer free before each: {self.more}"
        if self.grown is None:
            return f"{said}; the network cannot be widened."
        return f"{said}; with {self.share:.0%} more units {self.grown}. Eight of ten draws lie within."

    __repr__ = __str__


def forecast(core: Core, share: float) -> Forecast:
    """Return how many more tasks fit, without growth and with it."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < float("inf"):
        raise HatrackError(f"forecast takes the share of units that the network would grow by, got {share!r}.")
    if not core.capacities:
        raise HatrackError(f"{core.method.name} sets no weights aside for a task, so there is no room to run out of.")
    if core.released or core.versions:
        raise HatrackError(
            "a forecast goes by what each task took in turn, which is not known any more once one was released or "
            "updated."
        )
    if core.finished < 2:
        raise HatrackError("a forecast needs two finished tasks at least, to see how much of the network they take.")
    before, took = appetites(core.capacities, {step.tasks: step.taken for step in core.growths})
    now = taken_weights(core.method)
    assert now is not None
    layers = list(now["layers"])
    free: Share = {"total": 1 - now["total"], "layers": {layer: 1 - now["layers"][layer] for layer in layers}}
    more = fitting(ahead(before, took, list(free["layers"].values())), LITTLE)
    wider = _wider(core, free, share)
    grown = None if wider is None else fitting(ahead(before, took, wider), LITTLE)
    return Forecast(core.finished, free, more, share, grown)


def _wider(core: Core, free: Share, share: float) -> list[float] | None:
    """Return the free shares of all layers in a network that is wider by so much."""
    model = core.model
    with core.model.alone():
        try:
            plan = Widening(model, 0).plan({site.name: ceil(share * site.size) for site in model.units.sites})
        except HatrackError:
            return None
    found = []
    parameters = {name: p for name, p in model.net.named_parameters() if p.ndim > 1 and p.requires_grad}
    for layer, left in free["layers"].items():
        own = [name for name in parameters if (layer_of(name) or name) == layer]
        was = sum(parameters[name].numel() for name in own)
        now = sum(plan.tensors.get(name, parameters[name]).numel() for name in own)
        found.append((left * was + now - was) / now if now else left)
    return found
