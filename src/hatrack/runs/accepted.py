"""Which settings a method, a net and a benchmark have, with type and default."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any, get_type_hints

from hatrack.data.benchmarks import BENCHMARKS
from hatrack.methods import METHODS
from hatrack.methods.hyper import hyperparameters
from hatrack.nets import NETS, options


@dataclass(frozen=True)
class Setting:
    """The type and the default of one setting; one without a default must be given."""

    type: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is Parameter.empty


def of_method(name: str) -> dict[str, Setting]:
    """Return the settings of a method."""
    return {key: Setting(h.type, h.default) for key, h in hyperparameters(METHODS[name]).items()}


def of_net(name: str) -> dict[str, Setting]:
    """Return the settings of a net."""
    return _parameters(NETS[name], options(name))


def of_benchmark(name: str) -> dict[str, Setting]:
    """Return the settings of a benchmark."""
    return _parameters(BENCHMARKS[name].build, BENCHMARKS[name].options)


def _parameters(function: Callable[..., Any], names: Iterable[str]) -> dict[str, Setting]:
    parameters = signature(function).parameters
    types = get_type_hints(function.func if isinstance(function, partial) else function)
    return {name: Setting(types[name], parameters[name].default) for name in names}
