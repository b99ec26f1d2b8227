"""Typed hyper-parameters: a default, a line of help, the accepted values and the range that a search explores."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, get_type_hints

from hatrack.errors import HatrackError


class Documented:
    """The docstring of a method class: its own text, then a line for every setting."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, _: object, method: type[Any]) -> str:
        declared = [
            (f.name, f.default, f.metadata["hyper"]) for f in dataclasses.fields(method) if "hyper" in f.metadata
        ]
        lines = [f"    {name} = {default!r}{_shown(name, about)}: {about['help']}" for name, default, about in declared]
        return "\n".join([cleandoc(self._text), "", "Settings, with their defaults and what is accepted:", "", *lines])


def _shown(name: str, about: dict[str, Any]) -> str:
    accepted = _accepted(name, about["low"], about["high"], about["choices"])
    return f" ({accepted})" if accepted else ""


def _accepted(name: str, low: float | None, high: float | None, choices: tuple[Any, ...] | None) -> str:
    if choices is not None:
        return ", ".join(map(repr, choices))
    if low is None and high is None:
        return ""
    return ("" if low is None else f"{low} ≤ ") + name + ("" if high is None else f" ≤ {high}")


@dataclass(frozen=True)
class Hyper:
    """One hyper-parameter of a method; `search` is (low, high, "log" or "linear") or a tuple of choices."""

    name: str
    type: type
    default: Any
    help: str
    low: float | None
    high: float | None
    choices: tuple[Any, ...] | None
    search: tuple[Any, ...] | None


def hyper(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    search: tuple[Any, ...] | None = None,
) -> Any:
    """Declare a hyper-parameter as a dataclass field."""
    about = {"help": help, "low": low, "high": high, "choices": choices, "search": search}
    return dataclasses.field(default=default, metadata={"hyper": about})


def hyperparameters(method: type[Any]) -> dict[str, Hyper]:
    """Return the declared hyper-parameters of a method class by name."""
    types = get_type_hints(method)
    return {
        f.name: Hyper(f.name, types[f.name], f.default, **f.metadata["hyper"])
        for f in dataclasses.fields(method)
        if "hyper" in f.metadata
    }


def check(method: Any) -> None:
    """Raise one clear line if a hyper-parameter of `method` has a wrong type or value; ints become floats."""
    for name, h in hyperparameters(type(method)).items():
        value = getattr(method, name)
        if h.type is float and type(value) is int:
            value = float(value)
            setattr(method, name, value)
        where, accepted = f"{type(method).name}: {name}", _accepted(name, h.low, h.high, h.choices)
        if type(value) is not h.type:
            raise HatrackError(f"{where} must be of type {h.type.__name__}, got {value!r}.")
        if h.choices is not None and value not in h.choices:
            raise HatrackError(f"{where} must be one of {accepted}, got {value!r}.")
        number: Any = value
        if (h.low is not None and not number >= h.low) or (h.high is not None and not number <= h.high):
            raise HatrackError(f"{where} must satisfy {accepted}, got {value!r}.")
