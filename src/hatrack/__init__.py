"""One network, many hats: teach a PyTorch network a growing list of tasks and prove that no old one changed.

The public names, which are stable, and the subpackages that go with them are loaded when first used, so that
`hatrack --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatrack import data as data
    from hatrack import loggers as loggers
    from hatrack import measure as measure
    from hatrack import methods as methods
    from hatrack import nets as nets
    from hatrack import plot as plot
    from hatrack import targets as targets
    from hatrack import testing as testing
    from hatrack.data.benchmarks import tasks
    from hatrack.data.inputs import Inputs
    from hatrack.data.task import Task
    from hatrack.errors import CapacityWarning, DivergenceWarning, EngineWarning, HatrackError, HatrackWarning
    from hatrack.learn.fit import Epoch
    from hatrack.learn.hats import Hats
    from hatrack.learn.history import TaskHistory
    from hatrack.learn.learner import Learner
    from hatrack.learn.proof.verification import Verification
    from hatrack.learn.schedule import ByStep
    from hatrack.learn.state import load
    from hatrack.learn.which.answer import Answer
    from hatrack.life.adopt import Adopted
    from hatrack.life.forecast import Forecast
    from hatrack.life.grow import Grown
    from hatrack.life.observe import Observed
    from hatrack.life.release import Released
    from hatrack.life.update import Updated
    from hatrack.masks.explain import Explanation, explain
    from hatrack.methods.base import Method
    from hatrack.methods.hat import HAT
    from hatrack.methods.hyper import hyper
    from hatrack.methods.pmask import PMask

__version__ = "0.1.0"
__all__ = [
    "HAT",
    "Adopted",
    "Answer",
    "ByStep",
    "CapacityWarning",
    "DivergenceWarning",
    "EngineWarning",
    "Epoch",
    "Explanation",
    "Forecast",
    "Grown",
    "HatrackError",
    "HatrackWarning",
    "Hats",
    "Inputs",
    "Learner",
    "Method",
    "Observed",
    "PMask",
    "Released",
    "Task",
    "TaskHistory",
    "Updated",
    "Verification",
    "explain",
    "hyper",
    "load",
    "tasks",
]

_HOMES = {
    "Adopted": "life.adopt",
    "Answer": "learn.which.answer",
    "ByStep": "learn.schedule",
    "CapacityWarning": "errors",
    "DivergenceWarning": "errors",
    "EngineWarning": "errors",
    "Epoch": "learn.fit",
    "Explanation": "masks.explain",
    "Forecast": "life.forecast",
    "Grown": "life.grow",
    "HAT": "methods.hat",
    "HatrackError": "errors",
    "HatrackWarning": "errors",
    "Hats": "learn.hats",
    "Inputs": "data.inputs",
    "Learner": "learn.learner",
    "Method": "methods.base",
    "Observed": "life.observe",
    "PMask": "methods.pmask",
    "Released": "life.release",
    "Task": "data.task",
    "TaskHistory": "learn.history",
    "Updated": "life.update",
    "Verification": "learn.proof.verification",
    "explain": "masks.explain",
    "hyper": "methods.hyper",
    "load": "learn.state",
    "tasks": "data.benchmarks",
}
_SUBPACKAGES = ("data", "loggers", "measure", "methods", "nets", "plot", "targets", "testing")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hatrack.{_HOMES[name]}"), name)
    if name in _SUBPACKAGES:
        return import_module(f"hatrack.{name}")
    raise AttributeError(f"module 'hatrack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_SUBPACKAGES, "__version__"]
