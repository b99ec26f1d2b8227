"""The named sequences of tasks, and the table that `hatrack list benchmarks` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hatrack.data.digits import INPUTS as DIGIT_INPUTS
from hatrack.data.digits import digits
from hatrack.data.split import by_class, fixed_test, hold_out
from hatrack.data.task import Task
from hatrack.errors import HatrackError, unknown


@dataclass(frozen=True)
class Benchmark:
    """A named sequence: how to build it from a seed, and the settings a plain `hatrack run` gives it."""

    name: str
    summary: str
    build: Callable[..., list[Task]]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _split_digits(seed: int) -> list[Task]:
    x, y = digits()
    train, test = fixed_test(y, share=0.2)
    made = []
    for classes in ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)):
        parts = hold_out(train[by_class(y[train], classes)], share=0.15, seed=seed, salt=classes[0])
        name = f"digits {classes[0]}-{classes[1]}"
        made.append(parts.task(name, x, y, test[by_class(y[test], classes)], classes, DIGIT_INPUTS))
    return made


BENCHMARKS: dict[str, Benchmark] = {
    b.name: b
    for b in [
        Benchmark(
            "split-digits",
            "scikit-learn's 8×8 digits, 5 tasks of 2 classes; embedded, no download",
            _split_digits,
            {"net": "mlp"},
        ),
    ]
}


def tasks(benchmark: str, seed: int = 0, **options: Any) -> list[Task]:
    """Return the tasks of a named benchmark; order and splits depend on the seed alone."""
    if benchmark not in BENCHMARKS:
        raise unknown("benchmark", benchmark, BENCHMARKS)
    if seed < 0:
        raise HatrackError(f"seed must be 0 or more, got {seed}.")
    return BENCHMARKS[benchmark].build(seed=seed, **options)
