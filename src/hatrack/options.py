"""What a function or a class takes, and whether it can be a setting: annotated, with a default that a file can hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import partial
from inspect import Parameter, isclass, signature
from typing import Any, get_type_hints

from hatrack.errors import HatrackError, one_line


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return what a function or class takes by name."""
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {p.name: p for p in signature(function).parameters.values() if p.kind not in variable}


def places(function: Callable[..., Any]) -> int:
    """Return how many values a function must be given by place; 0 where it does not say."""
    try:
        taken = parameters(function).values()
    except (TypeError, ValueError):
        return 0
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in by_place and p.default is p.empty for p in taken)


def defaults(function: Callable[..., Any], besides: Collection[str]) -> dict[str, Any]:
    """Return the defaults of what a function takes by name, but for `besides`; None where one must be given."""
    taken = parameters(function).values()
    return {p.name: None if p.default is p.empty else p.default for p in taken if p.name not in besides}


def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types that a function or class says it takes."""
    plain = function.func if isinstance(function, partial) else function
    return get_type_hints(plain.__init__ if isclass(plain) else plain)


def check_options(function: Callable[..., Any], besides: Collection[str], where: str) -> None:
    """Raise unless all that a function takes can be a setting: annotated, with a default that a file can hold."""
    try:
        taken, types = parameters(function), types_of(function)
    except Exception as error:
        raise HatrackError(f"{where}: what it takes cannot be read ({one_line(error)}).") from error
    for name, parameter in taken.items():
        if name in besides:
            continue
        if name not in types:
            raise HatrackError(
                f"{where}: option {name!r} has no annotation; write its type, as in {name}: float = 0.5."
            )
        try:
            json.dumps(None if parameter.default is Parameter.empty else parameter.default, allow_nan=False)
        except (TypeError, ValueError):
            raise HatrackError(
                f"{where}: the default of option {name!r} must be a number, text, true/false, a list or None, "
                f"got {parameter.default!r:.99}."
            ) from None
