"""One input of a network: a tensor, or a tuple or a dict of tensors with one first axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from hatrack.errors import HatrackError

Tree: TypeAlias = "Tensor | tuple[Tensor, ...] | dict[str, Tensor]"


def named(x: Any) -> dict[str, Any]:
    """Return the tensors by name: a dict's keys, a tuple's places, '' for one alone."""
    if isinstance(x, dict):
        return x
    return {str(place): part for place, part in enumerate(x)} if isinstance(x, tuple) else {"": x}


def unnamed(parts: dict[str, Any]) -> Any:
    """Return what `named` was given."""
    if "" in parts:
        return parts[""]
    return tuple(parts.values()) if list(parts) == [str(place) for place in range(len(parts))] else parts


def leaves(x: Any) -> list[Any]:
    """Return the tensors in order."""
    return list(named(x).values())


def mapped(change: Callable[..., Any], x: Any, *others: Any) -> Any:
    """Return what `change` makes of every tensor (and of those at the same place in the others)."""
    changed = [change(*parts) for parts in zip(*map(leaves, (x, *others)), strict=True)]
    return rebuilt(x, changed)


def rebuilt(like: Any, parts: Sequence[Any]) -> Any:
    """Return `parts` in the form of `like`."""
    if isinstance(like, dict):
        return dict(zip(like, parts, strict=True))
    return tuple(parts) if isinstance(like, tuple) else parts[0]


def at(x: Any, index: Any) -> Any:
    """Return what stands at `index` (a slice, rows, a mask) of the first axis."""
    return mapped(lambda part: part[index], x)


def repeated(x: Any, times: int) -> Any:
    """Return the first sample of a batch, so many times."""
    return mapped(lambda part: part[:1].expand(times, *part.shape[1:]).clone(), x)


def count(x: Any) -> int:
    """Return the length of the first axis."""
    return len(leaves(x)[0])


def sample(x: Any) -> str:
    """Say the shape and the type of a sample of a batch."""
    each = {name: f"{tuple(part.shape[1:])} {part.dtype}" for name, part in named(x).items()}
    return each[""] if "" in each else ", ".join(f"{name}: {said}" for name, said in each.items())


def shapes(x: Any) -> list[tuple[int, ...]]:
    """Return the shape of every tensor of a sample of a batch."""
    return [tuple(part.shape[1:]) for part in leaves(x)]


def same_form(x: Any, other: Any) -> bool:
    """Whether both are one tensor, tuples of as many, or dicts of the same names."""
    return type_of(x) == type_of(other) and named(x).keys() == named(other).keys()


def type_of(x: Any) -> str:
    return "dict" if isinstance(x, dict) else "tuple" if isinstance(x, tuple) else "tensor"


def call(net: nn.Module, x: Any) -> Any:
    """Return net(x), net(*x) or net(**x), as x is one tensor, a tuple or a dict."""
    args, kwargs = arguments(x)
    return net(*args, **kwargs)


def arguments(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return x as a function is called with it."""
    if isinstance(x, dict):
        return (), x
    return (x if isinstance(x, tuple) else (x,)), {}


def reordered(x: Any, like: Any, what: str) -> Any:
    """Return x with a dict's tensors in the order of `like`; refuse another form."""
    if not same_form(x, like):
        raise HatrackError(f"{what}: expected {form(like)}, got {form(x)}.")
    return {name: x[name] for name in like} if isinstance(like, dict) else x


def form(x: Any) -> str:
    """Say what x is, in words."""
    kind = type_of(x)
    if kind == "tensor":
        return "one tensor"
    return f"a {kind} of {', '.join(x) if kind == 'dict' else len(x)}"
