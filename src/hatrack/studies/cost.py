"""How long a study takes on this machine: samples to be learned × the time a sample takes here.

The time is measured: a few training steps of plain SGD on each network, in batches of 64, on one core (or the GPU);
kept in the cache folder, since it takes seconds. The samples are those of the benchmarks' full data sets, or
train_per_class of every class. Epochs are not known beforehand: the lower figure is for training that never improves
after its first epoch (the patience schedule then runs out), the upper one for all epochs that are allowed, in all
phases of a method. What a step takes beyond plain SGD is in STEP, by method; validation after every epoch and testing
after every task are counted, the reading of data is not.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from hatrack import atomic
from hatrack.data.fewer import OPTION
from hatrack.data.locate import cache_root
from hatrack.data.mixture import names_in
from hatrack.methods import METHODS
from hatrack.runs.setup import new_net
from hatrack.runs.spec import Spec
from hatrack.studies.executor import default_workers

BATCH, STEPS = 64, 3
RUN = 3.0  # seconds beside it all: data read, the network traced, what is kept written and proved
ANSWER = 0.3  # of a sample's training step, to answer it
VALIDATED = 0.12  # validation samples for one of training
# A step over that of plain SGD on the same network; 1 where it is less than a tenth more. Processor time of the second
# of five tasks, AlexNet-like net of a quarter of the width, batches of 64, one core; PNN's grows with the tasks.
STEP = {
    "a-gem": 7.4,
    "den": 1.4,
    "der++": 2.8,
    "ewc": 1.2,
    "ewc-gi": 1.1,
    "fisher-mask-ewc": 1.1,
    "hat": 1.2,
    "hpg": 1.1,
    "imm-mean": 1.1,
    "imm-mode": 1.1,
    "lfl": 2.6,
    "lwf": 2.6,
    "pathnet": 0.3,  # of 16 modules that the network has, it computes three
    "pmask": 1.3,
    "pnn": 3.8,
    "replay": 1.7,
    "si": 1.1,
    "supsup": 1.6,
    "tag": 1.1,
    "ucl": 1.4,
    "wsn": 1.7,
}


@dataclass(frozen=True)
class Size:
    """Tasks; training samples, classes and test samples of all of them together; the shape of an input."""

    tasks: int
    train: int
    classes: int
    test: int
    shape: tuple[int, ...]


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
SIZES: dict[str, Size] = {
    "split-digits": Size(5, 1220, 10, 360, (1, 8, 8)),
    "permuted-digits": Size(10, 12200, 100, 3600, (1, 8, 8)),
    "split-mnist": Size(5, 54_000, 10, 10_000, _GREY),
    "mnist2": Size(2, 54_000, 10, 10_000, _GREY),
    "permuted-mnist": Size(10, 540_000, 100, 100_000, _GREY),
    "mixture": Size(8, 314_000, 293, 90_000, _COLOUR),  # about: FaceScrub comes in several sizes
    "cifar": Size(10, 90_000, 110, 20_000, _COLOUR),
    "split-cifar10": Size(5, 45_000, 10, 10_000, _COLOUR),
    "split-cifar100": Size(10, 45_000, 100, 10_000, _COLOUR),
    "c-10": Size(10, 45_000, 100, 10_000, _COLOUR),
    "c-20": Size(20, 45_000, 100, 10_000, _COLOUR),
    "tiny-imagenet": Size(10, 90_000, 200, 10_000, _COLOUR),
    "t-10": Size(10, 90_000, 200, 10_000, _COLOUR),
    "t-20": Size(20, 90_000, 200, 10_000, _COLOUR),
    "imagenet32": Size(100, 1_000_000, 1000, 50_000, _COLOUR),
    "imagenet32-100": Size(100, 1_000_000, 1000, 50_000, _COLOUR),
    "i-100": Size(100, 1_000_000, 1000, 50_000, _COLOUR),
    "fceleba": Size(10, 4_000, 20, 800, _COLOUR),
    "fc-10": Size(10, 4_000, 20, 800, _COLOUR),
    "fc-20": Size(20, 8_000, 40, 1600, _COLOUR),
    "femnist": Size(10, 31_000, 620, 6200, _GREY),
    "fe-10": Size(10, 31_000, 620, 6200, _GREY),
    "fe-20": Size(20, 62_000, 1240, 12_400, _GREY),
    "sensors": Size(8, 691, 46, 2156, (12, 128)),
    "fc-10-stand-in": Size(10, 4_000, 20, 800, _COLOUR),
    "fc-20-stand-in": Size(20, 6_852, 40, 1_353, _COLOUR),
    "fe-10-stand-in": Size(10, 13_000, 260, 2_600, _GREY),
    "fe-20-stand-in": Size(20, 16_120, 520, 3_120, _GREY),
}


@dataclass(frozen=True)
class Estimate:
    """Hours on this machine, at least and at most."""

    low: float
    high: float
    where: str


def most_tasks(spec: Spec) -> int | None:
    """Return how many tasks a run has at most (members of mixture may be left out); None where only its data tell."""
    size = SIZES.get(spec.benchmark)
    return None if size is None else spec.benchmark_options.get("tasks", size.tasks)


def estimate(runs: Iterable[Spec]) -> Estimate | None:
    """Return how long runs take here, all workers busy; None for none, and for tasks of unknown size."""
    specs = list(runs)
    if not specs or any(spec.benchmark not in SIZES for spec in specs):
        return None
    known: dict[str, float] = {}
    with suppress(OSError, ValueError):
        known = json.loads(_cache().read_text())
    low = high = 0.0
    for spec in specs:
        if METHODS[spec.method].trains:
            least, most = _sample_epochs(spec)
            seconds = _seconds(spec, known)
            low, high = low + least * seconds + RUN, high + most * seconds + RUN
    workers = default_workers(specs[0].device)
    cuda = specs[0].device.startswith("cuda")
    noun = ("GPU" if cuda else "core") + ("" if workers == 1 else "s")
    return Estimate(low / workers / 3600, high / workers / 3600, f"{workers} {noun}")


def _sample_epochs(spec: Spec) -> tuple[float, float]:
    """Return samples × epochs that a run goes through, at least and at most, in steps of plain SGD.

    Where the phases of a task may together take k times the epochs allowed, both figures count k times.
    """
    size = SIZES[spec.benchmark]
    count = spec.benchmark_options.get("tasks", size.tasks)
    if "without" in spec.benchmark_options:
        count -= len(names_in(spec.benchmark_options["without"] or ()))
    # Where it is not one set that is divided, a task is as large in any number.
    parts = size.tasks if spec.benchmark.startswith(("permuted", "mixture", "sensors")) else count
    each, tested = size.train / parts, size.test / parts
    most_a_class = spec.benchmark_options.get(OPTION)
    each = min(each, most_a_class * size.classes / parts) if most_a_class else each
    method = spec.new_method()
    drops = ceil(log(method.lr / method.lr_min, method.lr_factor)) if method.lr_factor > 1 and method.lr_min > 0 else 1
    shortest = min(spec.epochs, 1 + method.lr_patience * max(1, drops)) if spec.scheduler == "patience" else spec.epochs
    epochs = 0.0
    for task in range(count):
        method.task = task  # by which some methods choose their phases
        again = method.remembered() * task if method.needs_old_data else 0.0
        epochs += (1 + again) * sum(method.phases(spec.epochs))
    learned = epochs * each * (STEP.get(spec.method, 1.0) + ANSWER * VALIDATED)
    told = ANSWER * tested * count * (count + 1) / 2  # the tests of all tasks so far, after every task
    return learned * shortest / spec.epochs + told, learned + told


def _seconds(spec: Spec, known: dict[str, float]) -> float:
    """Return how long the network takes to learn a sample: as `known`, else measured and noted, once a machine."""
    shape = SIZES[spec.benchmark].shape
    sizes = {k: v for k, v in spec.net_options.items() if "dropout" not in k}  # which costs next to nothing
    key = json.dumps([platform.node(), spec.device, spec.net, sizes, shape])
    if key not in known:
        known[key] = _seconds_a_sample(spec, shape)
        with suppress(OSError):
            _cache().parent.mkdir(parents=True, exist_ok=True)
            atomic.write(_cache(), json.dumps(known, indent=0))
    return known[key]


def _cache() -> Path:
    return cache_root() / "speeds.json"


def _seconds_a_sample(spec: Spec, shape: tuple[int, ...]) -> float:
    """Time training steps of the plain network, with one thread on a CPU."""
    import torch
    from torch.nn.functional import cross_entropy

    device = torch.device(spec.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        net = new_net(spec, shape).to(device)
        x = torch.randn(BATCH, *shape, device=device)
        head = torch.nn.Linear(net(x).flatten(1).shape[1], 10, device=device)
        y = torch.arange(BATCH, device=device) % 10
        optimizer: Any = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-4)
        times = []
        for _ in range(STEPS + 1):
            start = perf_counter()
            optimizer.zero_grad()
            loss = cross_entropy(head(net(x).flatten(1)), y)
            loss.backward()
            optimizer.step()
            loss.item()  # waits for the device
            times.append((perf_counter() - start) / BATCH)
        return median(times[1:])
    finally:
        torch.set_num_threads(threads)


def between(low: float, high: float) -> str:
    """Write a range of hours."""
    return said(high) if said(low) == said(high) else f"{said(low)} to {said(high)}"


def said(hours: float) -> str:
    """Write hours, or minutes where there are few."""
    if hours < 1:
        return f"{max(1, round(60 * hours))} min"
    return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"
