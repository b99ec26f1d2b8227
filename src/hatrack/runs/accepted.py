"""What a run is made of, a method, a net and a benchmark: where their names stand, and which settings they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from hatrack.data.benchmarks import AUGMENT, BENCHMARKS
from hatrack.data.fewer import OPTION
from hatrack.methods import METHODS
from hatrack.methods.hyper import hyperparameters
from hatrack.nets import NETS, options
from hatrack.options import parameters, types_of
from hatrack.registry import Registry

REGISTRIES: dict[str, Registry[Any]] = {"method": METHODS, "net": NETS, "benchmark": BENCHMARKS}


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
    return {
        OPTION: Setting(int, 0),
        AUGMENT: Setting(str | None, None),
        **_parameters(BENCHMARKS[name].build, BENCHMARKS[name].options),
    }


def _parameters(function: Callable[..., Any], names: Iterable[str]) -> dict[str, Setting]:
    taken, types = parameters(function), types_of(function)
    return {name: Setting(types[name], taken[name].default) for name in names}
