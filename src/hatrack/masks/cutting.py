"""Which sites of a network can do without units of theirs, found by trying.

No rule says what code of the user's bears: a view with a width written in it, a channel shuffle, a mean over units. So
units are taken out, all at once, else site by site, and where answers change or none come the site stays whole.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hatrack import swap
from hatrack.errors import HatrackError, one_line
from hatrack.features import Features, Pick
from hatrack.masks.attention import heads
from hatrack.masks.check import moved, normal
from hatrack.masks.folding import put_gates
from hatrack.masks.gates import Gating
from hatrack.masks.grouped import balanced, coupled, grouped, recurrent
from hatrack.masks.narrow_layers import slice_layers
from hatrack.masks.slicing import Uncuttable, left, taken
from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import Site, UnitMap
from hatrack.modes import untouched
from hatrack.swap import Slots
from hatrack.tree import at, mapped

WITHIN = 1e-5  # of the largest number: sums of other lengths are rounded otherwise
WITHIN_EXACT = 1e-9  # the same in float64, in which nothing else than rounding is so small
UNEVEN = "groups of a convolution, heads of attention, directions of an RNN keep equal numbers"


def close(answer: Tensor, reference: Tensor, within: float = WITHIN) -> bool:
    """Whether answers agree within rounding."""
    if answer.shape != reference.shape or not bool(answer.isfinite().all()):
        return False
    return bool((answer - reference).abs().max() <= within * reference.abs().max())


def objected(same: Callable[[], bool]) -> str | None:
    """Return why a network cannot do without some units, None if it can; `same`: whether its answers stay."""
    try:
        return None if same() else "its answers would change"
    except Uncuttable as reason:
        return str(reason)
    except Exception as error:  # whatever a network raises that knows its widths by heart
        lines = str(error).strip().splitlines()
        return lines[0] if lines else type(error).__name__


def wanted(units: UnitMap, gates: Tensor) -> list[tuple[Site, Tensor]]:
    """Return every site with closed units, and these; one unit is left of a site that is closed altogether."""
    found = []
    for site in units.sites:
        closed = torch.zeros(units.size, dtype=torch.bool)
        inside = slice(site.start, site.start + site.size)
        closed[inside] = (gates[inside] == 0).cpu()
        if bool(closed[inside].all()):
            closed[site.start] = False
        if bool(closed.any()):
            found.append((site, closed))
    return found


def bearable(
    net: nn.Module, units: UnitMap, gates: Tensor, objection: Callable[[Tensor], str | None]
) -> tuple[Tensor, dict[str, str]]:
    """Return the closed units that can go, and why sites with others stay: all at once, else site by site."""
    gone = torch.zeros(units.size, dtype=torch.bool)
    why: dict[str, str] = {}
    layers = [*grouped(net, units), *heads(net, units).values(), *recurrent(net, units)]
    given = wanted(units, gates)
    together = coupled(layers, units, [site for site, _ in given])
    parts = [[pair for pair in given if pair[0] in sites] for sites in together]
    for some in (given, *(part for part in parts if len(part) > 1), *([pair] for pair in given)):
        more = gone
        for _, closed in some:
            more = more | closed
        more = balanced(layers, more)
        against = objection(more) if bool((more & ~gone).any()) else None
        if against is None:
            gone = more
        for site, closed in some:
            partly = against is None and bool((gone & closed).any())
            why[site.name] = UNEVEN if partly else against or why.get(site.name, UNEVEN)
    return gone, why


def copied(net: nn.Module) -> nn.Module:
    """Return a copy of a network, to be cut."""
    try:
        return swap.copied(net)
    except Exception as error:  # whatever the user's objects raise
        raise HatrackError(
            f"{type(net).__name__} cannot be copied, so that none can be cut: {one_line(error)}"
        ) from None


def held(net: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as a network holds them: its parameters as parameters."""
    parameters = dict(net.named_parameters())
    return {n: nn.Parameter(t, requires_grad=False) if n in parameters else t for n, t in tensors.items()}


def stirred(net: nn.Module, x: Any) -> Iterator[tuple[nn.Module, Any, float]]:
    """Yield networks to try cuts on, with inputs and how near answers must come: weights that are not 0 are others.

    In a network's own a ReLU that is off may hide what a cut does, and rounding what is small: so first in float64.
    """
    numbers, net = torch.Generator().manual_seed(0), copy.deepcopy(net)
    for p in net.parameters():
        if p.is_floating_point():
            p.mul_(torch.randn(p.shape, generator=numbers).to(p))
    exact = mapped(lambda part: part.double() if part.is_floating_point() else part, x)
    yield copy.deepcopy(net).double(), exact, WITHIN_EXACT
    yield net, x, WITHIN  # where forward() makes float32 of its own


def without(net: nn.Module, units: UnitMap, gates: Tensor, gone: Tensor) -> nn.Module:
    """Return a copy of a network without the units in `gone`; all others that are closed are behind gates."""
    net = copy.deepcopy(net)
    slice_layers(net, units, gone)
    put_gates(net, units, gates, gone)
    return net


# ---- without a task


def stay_whole(net: nn.Module, units: UnitMap, x: Any, pick: Pick | None = None) -> dict[str, str]:
    """Return the sites that a cut-out would leave at full width, and why; tried with every other unit closed."""
    if not units.sites:
        return {}
    gates, numbers = torch.cat([torch.arange(s.size) % 2 == 0 for s in units.sites]), torch.Generator().manual_seed(1)
    try:
        original = copied(net).eval().requires_grad_(False)
    except HatrackError as error:
        return {site.name: str(error) for site in units.sites}
    with torch.no_grad():
        for p in original.parameters():
            p.copy_(moved(p, numbers))
    noisy = mapped(lambda part: part + normal(part, numbers) if part.is_floating_point() else part, at(x, slice(2)))
    why: str | None = None
    for source, example, within in stirred(original, noisy):
        trial = _Trial(source, units, gates, example, pick, within)
        why = objected(trial.begin)
        if why is None:
            gone, reasons = bearable(source, units, gates, trial.objection)
            whole = [site.name for site, closed in wanted(units, gates) if not bool((gone & closed).any())]
            return {name: reasons[name] for name in whole}
    return {site.name: f"no gates can be written into a copy of the network ({why})" for site in units.sites}


class _Trial:
    """Compares the features of a network with some closed units, and of the same without them."""

    def __init__(self, net: nn.Module, units: UnitMap, gates: Tensor, x: Any, pick: Pick | None, within: float) -> None:
        self._net, self._units, self._gates, self._x, self._pick, self._within = net, units, gates, x, pick, within

    def begin(self) -> bool:
        """Take the features with all units in place; raises where they cannot be had."""
        tensors = dict(self._net.named_parameters())
        Slots(self._net).put(held(self._net, Gating(self._net, self._units).weights(self._gates, tensors)))
        self._reference = self._features(torch.zeros(self._units.size, dtype=torch.bool))
        if (self._within == WITHIN_EXACT) != (self._reference.dtype == torch.float64):
            raise TypeError(f"its features are {self._reference.dtype}")
        if not bool(self._reference.isfinite().all()):
            raise ArithmeticError("its features are no finite numbers")
        return True

    def objection(self, gone: Tensor) -> str | None:
        return objected(lambda: self._same(gone))

    def _same(self, gone: Tensor) -> bool:
        shape = self._reference.shape[1:]
        keep = left([compact(self._units.features).expand(shape).cpu()], shape, gone)
        return close(self._features(gone), taken(self._reference, [None, *keep]), self._within)

    def _features(self, gone: Tensor) -> Tensor:
        net = without(self._net, self._units, self._gates, gone)
        with torch.no_grad(), untouched(net):
            return Features(net, self._pick)(self._x)
