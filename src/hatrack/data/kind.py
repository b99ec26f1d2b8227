"""What a task's raw inputs are like: the shape and type of a sample, and the least and the greatest value seen.

From this alone inputs can be made that the network takes, so that no sample need be kept, and inputs can be told that
the task was never trained on. The range is that of every entry for itself where a sample is a row of figures or
holds integers (columns of a table and tokens each have their own, and an embedding takes no number beyond its
own); of all entries together where it is a picture or a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hatrack.data.samples import Split
from hatrack.errors import HatrackError
from hatrack.reach import NEAR, reach, unit
from hatrack.tree import form, named, type_of

SOME = 256  # samples of a Dataset that are looked at
CHUNK = 4096  # rows of an array that are looked at together


@dataclass(frozen=True, eq=False)
class Kind:
    """`low` and `high` hold one value, or one an entry; `raw`: of inputs as they were given, not yet prepared."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: Tensor = field(repr=False)
    high: Tensor = field(repr=False)
    raw: bool = True

    def draw(self, count: int, random: np.random.RandomState) -> Tensor:
        """Return `count` samples, each entry evenly between the least and the greatest value."""
        shape = (*self.shape, 2) if self.dtype.is_complex else self.shape
        evenly = torch.from_numpy(random.random_sample((count, *shape)))
        low, high = self.low.double(), self.high.double()
        if self.low.is_floating_point():
            drawn = (low + evenly * (high - low)).to(self.low.dtype)
        else:
            drawn = (low + evenly * (high - low + 1)).floor().to(self.low.dtype).clamp(self.low, self.high)
        return torch.view_as_complex(drawn) if self.dtype.is_complex else drawn.to(self.dtype)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of a sample, alone."""
        return [self.shape]

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value of all entries."""
        return float(self.low.min()), float(self.high.max())

    def objection(self, x: Any, ids: bool = False) -> str | None:
        """Say why raw inputs cannot mean what the learned ones did, or return None; NaN is let pass.

        `ids`: bytes are numbers of words, as other integers are.
        """
        if not isinstance(x, Tensor):
            return f"got {form(x)}, and the task was trained on one tensor"
        given, learned = _sort(x.dtype, ids), _sort(self.dtype, ids)
        if not self.raw or x.numel() == 0 or "other" in (given, learned) or (given, learned) == ("integer", "integer"):
            return None
        least, most = self.range
        said = f"the task was trained on {_name(self.dtype)} from {least:g} to {most:g}"
        if given == "byte" and (learned == "byte" or (learned == "float" and unit(least, most))):
            return None
        if (given != "float" and learned == "float") or (given != "integer" and learned == "integer"):
            return f"got {_name(x.dtype)}, and {said}; give {_name(self.dtype)}"
        low, high = torch.stack(torch.aminmax(x)).tolist()
        if learned == "float":
            (lowest, highest), remedy = reach(least, most), "bring them to that scale"
            outside = low < lowest or high > highest
        else:
            remedy = "give uint8, or floats from 0 to 1"
            outside = bool(low or high) if given == "integer" else low < -NEAR or high > 1 + NEAR
        return f"got {_name(x.dtype)} from {low:g} to {high:g}, and {said}; {remedy}" if outside else None

    def beyond(self, x: Tensor, ids: bool = False) -> str | None:
        """Say by how much integers leave what was learned, or return None; only a network knows what it looks up."""
        (low, high), (least, most) = torch.stack(torch.aminmax(x)).tolist(), self.range
        if (_sort(x.dtype, ids), _sort(self.dtype, ids)) != ("integer", "integer") or (least <= low and high <= most):
            return None
        return f"got values from {low} to {high}, it was trained on {least:g} to {most:g}"


@dataclass(frozen=True, eq=False)
class Kinds:
    """The same of samples that are a tuple or a dict of tensors: each of its own kind."""

    form: str  # "tuple" or "dict"
    parts: dict[str, Kind]

    def draw(self, count: int, random: np.random.RandomState) -> Any:
        """Return `count` samples, each entry of each tensor evenly between the least and the greatest value."""
        drawn = {name: kind.draw(count, random) for name, kind in self.parts.items()}
        return tuple(drawn.values()) if self.form == "tuple" else drawn

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of every tensor of a sample."""
        return [kind.shape for kind in self.parts.values()]

    def __str__(self) -> str:
        return ", ".join(f"{name}: {kind.shape} {_name(kind.dtype)}" for name, kind in self.parts.items())

    @property
    def raw(self) -> bool:
        return all(kind.raw for kind in self.parts.values())

    def objection(self, x: Any, ids: bool = False) -> str | None:
        """Say why raw inputs cannot mean what the learned ones did, or return None."""
        given = named(x)
        if type_of(x) != self.form or given.keys() != self.parts.keys():
            like = dict.fromkeys(self.parts)
            return f"got {form(x)}, and the task was trained on {form(like if self.form == 'dict' else tuple(like))}"
        found = ((name, kind.objection(given[name], ids)) for name, kind in self.parts.items())
        return next((f"{name}: {said}" for name, said in found if said is not None), None)

    def beyond(self, x: Any, ids: bool = False) -> str | None:
        """Say by how much integers leave what was learned, or return None."""
        found = ((name, self.parts[name].beyond(part, ids)) for name, part in named(x).items())
        return next((f"{name}: {said}" for name, said in found if said is not None), None)


def seen(split: Split) -> Kind | Kinds:
    """Return what the samples of a split are like: all of an array's, the first few of a Dataset's."""
    if not split.resident:
        some = split.first(SOME)
        return alike(lambda: [some])
    return alike(lambda: split.chunks(CHUNK))


def alike(batches: Callable[[], Iterable[Any]]) -> Kind | Kinds:
    """Return what the samples in `batches()` are like, tensor by tensor."""
    first = next(iter(batches()))
    if isinstance(first, Tensor):
        return of(batches())
    parts = {name: of(named(x)[name] for x in batches()) for name in named(first)}
    return Kinds(type_of(first), parts)


def as_prepared(kind: Kind | Kinds) -> Kind | Kinds:
    """Return what inputs are like that were looked at after their preparation."""
    if isinstance(kind, Kinds):
        return Kinds(kind.form, {name: replace(part, raw=False) for name, part in kind.parts.items()})
    return replace(kind, raw=False)


def of(parts: Iterable[Tensor], raw: bool = True) -> Kind:
    """Return what the samples in `parts` are like."""
    low = high = None
    for x in parts:
        figures = _figures(x)
        each = x.ndim == 2 or _sort(x.dtype) == "integer"
        least, most = _bounds(figures, each)
        if not bool((least.isfinite() & most.isfinite()).all()):  # a Dataset may hold what an array may not
            least, most = _bounds(torch.where(figures.isfinite(), figures, 0), each)
        low = least if low is None else torch.minimum(low, least)
        high = most if high is None else torch.maximum(high, most)
        shape, dtype = tuple(x.shape[1:]), x.dtype
    assert low is not None
    assert high is not None
    return Kind(shape, dtype, low.cpu(), high.cpu(), raw)


def _bounds(figures: Tensor, each: bool) -> tuple[Tensor, Tensor]:
    least, most = torch.aminmax(figures, dim=0) if each else torch.aminmax(figures)
    return least, most


def _figures(x: Tensor) -> Tensor:
    """Return what is compared: the parts of complex numbers; torch orders not every type."""
    x = torch.view_as_real(x) if x.is_complex() else x
    return x if x.is_floating_point() or x.dtype in (torch.uint8, torch.int64, torch.int32) else x.long()


def _sort(dtype: torch.dtype, ids: bool = False) -> str:
    if dtype == torch.uint8:
        return "integer" if ids else "byte"
    if dtype.is_floating_point:
        return "float"
    return "other" if dtype.is_complex or dtype == torch.bool else "integer"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def described(kind: Kind | Kinds) -> dict[str, Any]:
    """Return all but the ranges in JSON values."""
    if isinstance(kind, Kinds):
        return {"form": kind.form, "parts": {name: described(part) for name, part in kind.parts.items()}}
    return {"shape": list(kind.shape), "dtype": _name(kind.dtype), "raw": kind.raw}


def ranges(kind: Kind | Kinds) -> dict[str, Tensor]:
    """Return the least and the greatest values by name."""
    if isinstance(kind, Kinds):
        return {f"{name}/{end}": x for name, part in kind.parts.items() for end, x in ranges(part).items()}
    return {"low": kind.low, "high": kind.high}


def restored(about: dict[str, Any], held: Mapping[str, Tensor]) -> Kind | Kinds:
    """Return what `described` and `ranges` told of."""
    if "parts" in about:
        each = about["parts"].items()
        parts = {name: restored(told, {end: held[f"{name}/{end}"] for end in ("low", "high")}) for name, told in each}
        return Kinds(about["form"], {name: part for name, part in parts.items() if isinstance(part, Kind)})
    if not isinstance(dtype := getattr(torch, about["dtype"], None), torch.dtype):
        raise HatrackError(f"{about['dtype']!r} is no type of numbers.")
    return Kind(tuple(about["shape"]), dtype, held["low"], held["high"], about["raw"])
