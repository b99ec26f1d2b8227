"""A map is never believed, it is checked: on the very network that it was derived from.

The map says, for a choice of open units, which parameter entries matter. So: open units at random, write noise into
every entry that is said not to matter, and compare the gated features bit by bit; ask autograd as well. Where features
change, or have a gradient with respect to such an entry, the map is wrong about a parameter. It is found by that
gradient or by bisection, and counts as used by every task from then on: a wrong rule costs capacity, never the
promise.

A branch that is scaled by 0 at the start would hide what passes through it, so that for the check parameters that are
constant are moved away from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hatrack.errors import HatrackError
from hatrack.masks.gates import Gating
from hatrack.masks.unitmap import ON, Note, UnitMap, Use
from hatrack.modes import evaluating, untouched
from hatrack.swap import Slots
from hatrack.tree import at, call, leaves, mapped

NOISY, DIFFERENTIATED = (0.8, 0.4), 0.6  # shares of units that are open where noise, or autograd, is to find leaks
NOISE = 3.0
MOVE = 0.3
INPUTS = 2  # of those that are given
WHY = "is frozen after the first task: features depend on entries that the unit map calls unused"


def check(net: nn.Module, units: UnitMap, inputs: Any) -> None:
    """Check `units` on `net` with several inputs; parameters that it is wrong about are put down as always used."""
    with evaluating(net), torch.no_grad():
        trial = _Trial(net, units, inputs)
        correct(units, trial.with_gradient(DIFFERENTIATED))
        for share in NOISY:
            correct(units, trial.changed_by_noise(share))
    units.checked = True


def correct(units: UnitMap, wrong: Iterable[str]) -> None:
    """Count parameters that the map is wrong about as used by every task."""
    for name in wrong:
        units.corrected.append(name)
        units.uses[name] = [Use((torch.full((1,), ON),))]
        units.notes.append(Note(name, WHY))


class _Trial:
    """A network with its trained parameters where nothing is hidden, and noise to be written into some of them."""

    def __init__(self, net: nn.Module, units: UnitMap, inputs: Any) -> None:
        self._net, self._units = net, units
        self._gating, self._slots = Gating(net, units), Slots(net)
        self._numbers = torch.Generator().manual_seed(0)
        self._x = self._several(at(inputs, slice(INPUTS)))
        trained = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
        self._clean = {name: moved(p, self._numbers) for name, p in trained.items()}
        self._noise = {name: NOISE * normal(p, self._numbers) for name, p in trained.items()}
        self._parameters, self._buffers = dict(net.named_parameters()), dict(net.named_buffers())

    def with_gradient(self, share: float) -> list[str]:
        """Return the parameters with a gradient at entries that should not matter when `share` of units is open."""
        gates, free = self._drawn(share)
        tensors = {name: p.detach().requires_grad_() for name, p in self._clean.items()}
        with torch.enable_grad():
            features = self._features(gates, tensors, samples=1)  # a backward pass costs as much as two of those
            if not features.requires_grad:
                return []
            weighted = (features * normal(features, self._numbers)).sum()
            try:
                found = torch.autograd.grad(weighted, list(tensors.values()), allow_unused=True)
            except Exception:  # some backward passes are for training mode alone; then noise has the say
                return []
        gradients = zip(tensors, found, strict=True)
        return [n for n, g in gradients if g is not None and bool((free[n] & g.isfinite() & (g != 0)).any())]

    def changed_by_noise(self, share: float) -> list[str]:
        """Return the parameters of which entries that should not matter change the features."""
        gates, free = self._drawn(share)
        clean = self._features(gates, self._clean)
        noisy = {name: torch.where(free[name], self._noise[name], p) for name, p in self._clean.items()}

        def differs(names: Collection[str]) -> bool:
            return not _same(clean, self._features(gates, {**self._clean, **{name: noisy[name] for name in names}}))

        found: list[str] = []
        while (rest := [name for name in self._clean if name not in found]) and differs(rest):
            if differs([]):
                raise HatrackError(
                    f"{type(self._net).__name__} gives two answers to one input in evaluation mode, so that none could "
                    f"be promised to stay; take out what it draws at random there."
                )
            found += _located(rest, differs)
        return found

    def _drawn(self, share: float) -> tuple[Tensor, dict[str, Tensor]]:
        """Return open units, and for every parameter the entries that then should not matter."""
        gates = (torch.rand(self._units.size, generator=self._numbers) < share).to(leaves(self._x)[0].device)
        seen = self._units.features[self._units.features != ON]
        if len(seen) and not bool(gates[seen].any()):  # nothing would be seen
            gates[seen[:1]] = True
        used = self._units.used(gates)
        return gates, {n: ~used[n] if n in used else p.new_ones((), dtype=torch.bool) for n, p in self._clean.items()}

    def _features(self, gates: Tensor, tensors: dict[str, Tensor], samples: int | None = None) -> Tensor:
        buffers = {name: buffer.clone() for name, buffer in self._buffers.items()}  # forward() may write into them
        held = {**buffers, **tensors}
        swapped = {**held, **self._gating.weights(gates, {**self._parameters, **held})}
        with self._gating.on_inputs(gates), self._slots.holding(swapped), untouched(self._net):
            features: Tensor = call(self._net, at(self._x, slice(samples)))
        return self._gating.features(gates, features)

    def _several(self, x: Any) -> Any:
        """Return the inputs, and of numbers others beside them; of which words there are they say nothing."""
        if not any(part.is_floating_point() for part in leaves(x)):
            return x
        return mapped(lambda part: torch.cat([part, self._beside(part)]), x)

    def _beside(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        spread = x.std().nan_to_num() if x.numel() > 1 else x.new_zeros(())
        return x + torch.where(spread > 0, spread, 1.0) * normal(x, self._numbers)


def moved(p: Tensor, numbers: torch.Generator) -> Tensor:
    """Return a parameter as it is, or away from the one value that it has everywhere; its sign stays."""
    if p.numel() == 0 or bool((p != p.flatten()[0]).any()):
        return p.clone()
    step = MOVE * normal(p, numbers)
    return torch.where(p == 0, step, p * (1 + step.abs()))


def normal(like: Tensor, numbers: torch.Generator) -> Tensor:
    """Return normal numbers in the form of a tensor."""
    return torch.randn(like.shape, generator=numbers).to(like.device, like.dtype)


def _located(names: Sequence[str], differs: Callable[[Collection[str]], bool]) -> list[str]:
    """Return those of `names` that make a difference, by bisection; all of them where they do so together only."""
    if len(names) == 1:
        return list(names)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    found = [name for half in halves if differs(half) for name in _located(half, differs)]
    return found or list(names)


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two results are equal, 0 being −0, and what is not a number too."""
    return torch.equal(a, b) or bool(((a == b) | (a.isnan() & b.isnan())).all())
