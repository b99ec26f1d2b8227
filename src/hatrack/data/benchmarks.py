"""The named sequences of tasks, and the table that `hatrack list benchmarks` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter
from numbers import Integral
from typing import Any

from hatrack.data import by_class, federated, permuted, stand_ins
from hatrack.data.augmenting import augmentation
from hatrack.data.fewer import OPTION, fewer
from hatrack.data.folders import folders
from hatrack.data.locate import Folder
from hatrack.data.mixture import MEMBERS, mixture
from hatrack.data.sensors import sensors
from hatrack.data.sequence import sequence
from hatrack.data.task import Task
from hatrack.errors import HatrackError, unknown
from hatrack.options import check_options, defaults, parameters
from hatrack.registry import Registry

AUGMENT = "augment"
OFFERED: dict[str, Any] = {OPTION: 0, AUGMENT: None}  # options of every benchmark that has none of these names


@dataclass(frozen=True)
class Benchmark:
    """A named sequence: how to build it from a seed, and the settings a plain `hatrack run` gives it.

    `fixed` holds the options that the name itself decides (c-20 is split-cifar100 with 20 tasks).
    """

    name: str
    summary: str
    build: Callable[..., list[Task]]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """The options that `tasks` takes for this benchmark, with their defaults (None where it is required)."""
        return defaults(self.build, ("seed", "data", *self.fixed))

    @property
    def required(self) -> list[str]:
        taken = parameters(self.build)
        return [name for name in self.options if taken[name].default is Parameter.empty]

    @property
    def needs_data(self) -> bool:
        """Whether the benchmark reads pictures from a folder; the others are embedded."""
        return "data" in parameters(self.build)

    @property
    def sets(self) -> tuple[str, ...]:
        """The folders of image sets that it reads where nothing is left out or replaced; none for `sequence`."""
        return _READS.get(self.build, ())


def tasks(benchmark: str, seed: int = 0, *, data: Folder = None, **options: Any) -> list[Task]:
    """Return the tasks of a benchmark: a built-in one, file.py:Name or package.module:Name.

    Order and splits depend on the seed alone. `data` is the folder that holds the image sets (else HATRACK_DATA, else
    the user's cache). `train_per_class`: train on at most so many samples a class, and validate on fewer in proportion.
    `augment`: as a Task takes it, for all of them.
    """
    return make(BENCHMARKS.named(str(benchmark)), seed, data=data, **options)


def make(benchmark: str, seed: int = 0, *, data: Folder = None, **options: Any) -> list[Task]:
    """Return the same by a name that is known already."""
    chosen = BENCHMARKS.find(benchmark)
    offered = {key: options.pop(key, value) for key, value in OFFERED.items() if key not in chosen.options}
    if not isinstance(seed, Integral) or seed < 0:
        raise HatrackError(f"seed must be a whole number, 0 or more, got {seed!r}.")
    for key in options:
        if not chosen.options:
            raise HatrackError(f"benchmark {benchmark!r} takes no options, got {key!r}.")
        if key not in chosen.options:
            raise unknown(f"option of benchmark {benchmark!r}", key, chosen.options)
        if isinstance(chosen.options[key], int) and not isinstance(options[key], int):
            raise HatrackError(f"{key} of benchmark {benchmark!r} must be a whole number, got {options[key]!r}.")
    for key in chosen.required:
        if key not in options:
            raise HatrackError(f"benchmark {benchmark!r} needs the option {key!r}.")
    folder = {"data": data} if chosen.needs_data else {}
    made = chosen.build(seed=seed, **folder, **chosen.fixed, **options)
    if not isinstance(made, list) or not made or not all(isinstance(task, Task) for task in made):
        raise HatrackError(f"benchmark {benchmark!r} must return a list of hatrack.Task, got {made!r:.99}.")
    most, augment = offered.get(OPTION), offered.get(AUGMENT)
    made = [fewer(task, most, seed) for task in made] if most else made
    if augment is None:
        return made
    one = augmentation(augment, f"benchmark {benchmark!r}")
    return [task.with_augment(one) for task in made]


_READS: dict[Callable[..., list[Task]], tuple[str, ...]] = {
    by_class.split_mnist: ("mnist",),
    by_class.mnist2: ("mnist",),
    permuted.permuted_mnist: ("mnist",),
    mixture: MEMBERS,
    by_class.cifar: ("cifar10", "cifar100"),
    by_class.split_cifar10: ("cifar10",),
    by_class.split_cifar100: ("cifar100",),
    by_class.tiny_imagenet: ("tiny_imagenet32",),
    by_class.imagenet32: ("imagenet32",),
    federated.fceleba: ("celeba",),
    federated.femnist: ("femnist",),
    stand_ins.smile_parts: ("smiles",),
    stand_ins.letter_hands: ("emnist_letters",),
}

_MLP = {"net": "mlp"}
_SMALL_MLP = {"net": "mlp", "widths": (400, 400)}
_ALEXNET = {"net": "alexnet"}


def _benchmark(found: Any, name: str, where: str) -> Benchmark:
    """Return the record of a benchmark, or of a function that makes tasks."""
    if not isinstance(found, Benchmark) and (not callable(found) or isinstance(found, type)):
        raise HatrackError(f"{where} must be a function (seed, …) → list of hatrack.Task, got {found!r:.99}.")
    summary = " ".join((found.__doc__ or name).split("\n\n")[0].split())
    record = found if isinstance(found, Benchmark) else Benchmark(name, summary, found)
    check_options(record.build, ("seed", "data", *record.fixed), where)
    if "seed" not in parameters(record.build):
        raise HatrackError(f"{where} must take seed, from which its order and splits follow; it takes none.")
    return record


_OWN = [
    Benchmark(
        "split-digits",
        "scikit-learn's 8×8 digits, 5 tasks of 2 classes; embedded, no download",
        by_class.split_digits,
        _SMALL_MLP,
    ),
    Benchmark(
        "permuted-digits",
        "scikit-learn's 8×8 digits under 10 pixel permutations; embedded, no download",
        permuted.permuted_digits,
        _SMALL_MLP,
    ),
    Benchmark("split-mnist", "MNIST, 5 tasks of 2 digits", by_class.split_mnist, _MLP),
    Benchmark("mnist2", "MNIST, digits 0-4 then 5-9 (HAT)", by_class.mnist2, _MLP),
    Benchmark("permuted-mnist", "MNIST under 10 pixel permutations (HAT)", permuted.permuted_mnist, _MLP),
    Benchmark("mixture", "eight image sets as 32×32×3, order by seed (HAT)", mixture, _ALEXNET),
    Benchmark(
        "cifar", "CIFAR-10 in 5 × 2 and CIFAR-100 in 5 × 20 classes, order by seed (HAT)", by_class.cifar, _ALEXNET
    ),
    Benchmark("split-cifar10", "CIFAR-10, 5 tasks of 2 classes (PMASK)", by_class.split_cifar10, _ALEXNET),
    Benchmark(
        "split-cifar100", "CIFAR-100 in 5, 10 or 20 tasks, classes by seed (SPG)", by_class.split_cifar100, _ALEXNET
    ),
    Benchmark("c-10", "split-cifar100 in 10 tasks", by_class.split_cifar100, _ALEXNET, {"tasks": 10}),
    Benchmark("c-20", "split-cifar100 in 20 tasks", by_class.split_cifar100, _ALEXNET, {"tasks": 20}),
    Benchmark("tiny-imagenet", "Tiny ImageNet at 32×32 in 10 to 100 tasks (SPG)", by_class.tiny_imagenet, _ALEXNET),
    Benchmark("t-10", "tiny-imagenet in 10 tasks", by_class.tiny_imagenet, _ALEXNET, {"tasks": 10}),
    Benchmark("t-20", "tiny-imagenet in 20 tasks", by_class.tiny_imagenet, _ALEXNET, {"tasks": 20}),
    Benchmark("imagenet32", "ImageNet at 32×32 in 50, 100 or 200 tasks (SPG)", by_class.imagenet32, _ALEXNET),
    Benchmark("imagenet32-100", "imagenet32 in 100 tasks", by_class.imagenet32, _ALEXNET, {"tasks": 100}),
    Benchmark("i-100", "imagenet32-100 by its short name", by_class.imagenet32, _ALEXNET, {"tasks": 100}),
    Benchmark("fceleba", "F-CelebA: smiling or not, a LEAF user a task (SPG)", federated.fceleba, _ALEXNET),
    Benchmark("fc-10", "fceleba in 10 tasks", federated.fceleba, _ALEXNET, {"tasks": 10}),
    Benchmark("fc-20", "fceleba in 20 tasks", federated.fceleba, _ALEXNET, {"tasks": 20}),
    Benchmark("femnist", "F-EMNIST: 62 characters, a LEAF writer a task (SPG)", federated.femnist, _ALEXNET),
    Benchmark("fe-10", "femnist in 10 tasks", federated.femnist, _ALEXNET, {"tasks": 10}),
    Benchmark("fe-20", "femnist in 20 tasks", federated.femnist, _ALEXNET, {"tasks": 20}),
    Benchmark(
        "sensors",
        "eight sets of real time series: motion, gestures, power, speech, outlines; order by seed",
        sensors,
        {"net": "conv1d", "batch_size": 16},
    ),
    Benchmark("folders", "your own folders of pictures, a task each (--task NAME=DIR)", folders, _ALEXNET),
    *(
        Benchmark(
            f"fc-{n}-stand-in",
            f"smiling or not, {n} random parts of one set, where F-CelebA is not at hand",
            stand_ins.smile_parts,
            _ALEXNET,
            {"tasks": n},
        )
        for n in (10, 20)
    ),
    *(
        Benchmark(
            f"fe-{n}-stand-in",
            f"letters in {n} parts alike in slant and stroke, where F-EMNIST is not at hand",
            stand_ins.letter_hands,
            _ALEXNET,
            {"tasks": n},
        )
        for n in (10, 20)
    ),
    Benchmark("sequence", "your own: the tasks that a TOML file lists (file=...)", partial(sequence, make), _MLP),
]
BENCHMARKS = Registry("benchmark", {b.name: b for b in _OWN}, _benchmark)
