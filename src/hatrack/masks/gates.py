"""Gates: a = σ(s·e), how s is annealed, how embedding gradients are compensated, and where gates are applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import threshold

from hatrack.masks.union_find import compact
from hatrack.masks.unitmap import ON, UnitMap

EMBEDDING_RANGE = 6.0  # the active range of a plain sigmoid; embeddings are kept inside
COSH_RANGE = 50.0  # cosh(50) ≈ 2.6e21 still fits float32
CLOSED = 2.0**-90  # compensation, by cosh(50) ≈ 2^71 at most, makes nothing of slopes below
IN_CACHE = 2**18  # entries of a stretch: with what is computed from it, a core's share of it stays in its cache

Parts: TypeAlias = Mapping[tuple[int, int], Tensor]


def gate(embedding: Tensor, s: Tensor | float) -> Tensor:
    """a = σ(s·e)."""
    return torch.sigmoid(s * embedding)


def flushed(gates: Tensor) -> Tensor:
    """Return gates for products: 0 below CLOSED, with the slopes that they have.

    Products of gates that are next to nothing would be denormal numbers, with which some processors compute a hundred
    times more slowly.
    """
    return gates - (gates - threshold(gates, CLOSED, 0.0)).detach()


def anneal(fraction: Tensor, s_max: float) -> Tensor:
    """s = 1/s_max + (s_max − 1/s_max)·(b−1)/(B−1), with fraction = (b−1)/(B−1)."""
    return 1 / s_max + (s_max - 1 / s_max) * fraction


def compensate(gradient: Tensor, embedding: Tensor, s: Tensor, s_max: float) -> None:
    """q ← q · s_max·[cosh(clamp(s·e, ±50)) + 1] / (s·[cosh(e) + 1]), in place.

    The division undoes the slope of the annealed sigmoid, the product imposes that of σ(e) times s_max.
    """
    ratio = s_max / s
    for q, e in zip(in_cache(gradient), in_cache(embedding), strict=True):
        imposed = (e * s).clamp_(-COSH_RANGE, COSH_RANGE).cosh_().add_(1).mul_(ratio)
        q.mul_(imposed.div_(torch.cosh(e).add_(1)))


def in_cache(x: Tensor) -> Sequence[Tensor]:
    """Return stretches of x that a CPU goes through several times without fetching them anew."""
    return x.split(IN_CACHE) if x.device.type == "cpu" else [x]


def prices(taken: Tensor) -> Tensor:
    """(1 − a^{<t}) / Σ (1 − a^{<t}): what each gate costs; 0 when every unit is taken."""
    free = 1 - taken
    total = free.sum()
    return free / torch.where(total > 0, total, 1.0)


def sparsity(gates: Tensor, prices: Tensor) -> Tensor:
    """R = Σ a·(1 − a^{<t}) / Σ (1 − a^{<t})."""
    return torch.dot(gates, prices)


class Gating:
    """Multiplies what every layer reads by the gates of the units it reads, leaving the network as it is.

    Gates are a float vector over all units, or a boolean one: then closed units are replaced by exact zeros, so
    that not even a NaN behind a closed gate gets through.
    """

    def __init__(self, net: nn.Module, units: UnitMap) -> None:
        modules = dict(net.named_modules(remove_duplicate=False))
        self._inputs: dict[nn.Module, list[Spread]] = {}
        self._weights: list[tuple[str, Spread]] = []
        self._features = Spread(compact(units.features)[None])
        for read in units.reads:
            if read.module is not None:
                self._inputs.setdefault(modules[read.module], []).append(Spread(read.units))
            elif read.parameter is not None:
                self._weights.append((read.parameter, Spread(read.units)))
        self._segments = _segments([spread for each in self._inputs.values() for spread in each], units.size)

    def _cut(self, gates: Tensor) -> Parts:
        """Cut the gates into the stretches that layers read: one backward pass joins all of them again."""
        if not self._segments:
            return {}
        parts = gates.split([count for _, count in self._segments])
        return dict(zip(self._segments, parts, strict=True))

    @contextmanager
    def on_inputs(self, gates: Tensor) -> Iterator[None]:
        """Gate the inputs of all layers that can be reached through their module, while the context lasts."""
        hooks, parts = [], self._cut(gates)
        for module, spreads in self._inputs.items():
            # One factor a call; whoever works off a batch in pieces goes through the calls again.
            factors = cycle([spread(gates, parts) for spread in spreads])
            # Before the user's own hooks: the map knows what they do to a gated input, not to one that is gated later.
            hooks.append(module.register_forward_pre_hook(partial(_gate_input, factors), prepend=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def gated(self) -> set[str]:
        """The parameters that are gated themselves: the layers that use them cannot be reached otherwise."""
        return {name for name, _ in self._weights}

    def weights(self, gates: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the gated stand-ins for these; `tensors` has them all."""
        gated: dict[str, Tensor] = {}
        for name, spread in self._weights:
            gated[name] = apply(spread(gates), gated.get(name, tensors[name]))
        return gated

    def features(self, gates: Tensor, features: Tensor) -> Tensor:
        return apply(self._features(gates), features)


def _gate_input(factors: Iterator[Tensor], module: nn.Module, args: Any) -> Any:
    return (apply(next(factors), args[0]), *args[1:])


def apply(factor: Tensor, x: Tensor) -> Tensor:
    """Return x times the gates; closed boolean gates give exact zeros."""
    if factor.dtype == torch.bool:
        return torch.where(factor, x, torch.zeros((), dtype=x.dtype, device=x.device))
    return x * factor.to(x.dtype)


class Spread:
    """Copies a vector over units to the places in `units`, by slices and repeats where possible.

    Slices have a cheap and deterministic backward pass; only an irregular pattern falls back to indexing.
    """

    LONGEST = 64  # pieces beyond which indexing is cheaper

    def __init__(self, units: Tensor) -> None:
        self._shape = units.shape
        self._pieces = _pieces(units.flatten())
        self._index = units.flatten() if len(self._pieces) > self.LONGEST else None

    @property
    def stretches(self) -> set[tuple[int, int]]:
        """The stretches of units, as (start, count), that are copied."""
        return {(start, count) for start, count, _ in self._pieces if start != ON} if self._index is None else set()

    def __call__(self, vector: Tensor, cut: Parts = MappingProxyType({})) -> Tensor:
        if self._index is not None:
            if self._index.device != vector.device:
                self._index = self._index.to(vector.device)
            return torch.cat([vector, vector.new_ones(1)])[self._index].view(self._shape)
        parts = [
            vector.new_ones(count)
            if start == ON
            else _repeat(cut[start, count] if (start, count) in cut else vector.narrow(0, start, count), repeat)
            for start, count, repeat in self._pieces
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).view(self._shape)


def _segments(spreads: Sequence[Spread], size: int) -> list[tuple[int, int]]:
    """Return stretches that cover all units and hold every one that is read; none where those overlap."""
    found: list[tuple[int, int]] = []
    end = 0
    for start, count in sorted(set().union(*(spread.stretches for spread in spreads))):
        if start < end:
            return []
        if start > end:
            found.append((end, start - end))
        found.append((start, count))
        end = start + count
    return [*found, (end, size - end)] if end < size else found


def _repeat(part: Tensor, times: int) -> Tensor:
    return part if times == 1 else part[:, None].expand(-1, times).reshape(-1)


def _pieces(units: Tensor) -> list[tuple[int, int, int]]:
    """Write a list of unit numbers as (start, count, repeat): start, …, start+count−1, each `repeat` times."""
    values, counts = torch.unique_consecutive(units, return_counts=True)
    pieces: list[tuple[int, int, int]] = []
    for value, times in zip(values.tolist(), counts.tolist(), strict=True):
        start, count, repeat = pieces[-1] if pieces else (ON, 0, 0)
        if value == ON:
            pieces.append((ON, times, 1))
        elif start != ON and value == start + count and times == repeat:
            pieces[-1] = (start, count + 1, repeat)
        else:
            pieces.append((value, 1, times))
    return pieces
