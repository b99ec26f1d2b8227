"""How long a study takes on this machine: samples to be learned × the time a sample takes here.

The time is measured: a few training steps of plain SGD on each network, in batches of 64, on one core (or the GPU);
kept in the cache folder, since it takes seconds. The samples are those of the benchmarks' full data sets. Epochs
are not known beforehand: the lower figure is for training that never improves after its first epoch (the patience
schedule then runs out), the upper one for all epochs that are allowed, in all phases of a method. What a step of
another method takes beyond plain SGD is left out, as are evaluation and the reading of data.
"""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from hatrack import atomic
from hatrack.data.locate import cache_root
from hatrack.data.mixture import names_in
from hatrack.methods import METHODS
from hatrack.runs.setup import new_net
from hatrack.runs.spec import Spec
from hatrack.studies.executor import default_workers
from hatrack.studies.plan import Plan

BATCH, STEPS = 64, 3

# Tasks, training samples of all of them together, shape of an input.
_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)
SIZES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "split-digits": (5, 1220, (1, 8, 8)),
    "permuted-digits": (10, 12200, (1, 8, 8)),
    "split-mnist": (5, 54_000, _GREY),
    "mnist2": (2, 54_000, _GREY),
    "permuted-mnist": (10, 540_000, _GREY),
    "mixture": (8, 314_000, _COLOUR),  # about: FaceScrub comes in several sizes
    "cifar": (10, 90_000, _COLOUR),
    "split-cifar10": (5, 45_000, _COLOUR),
    "split-cifar100": (10, 45_000, _COLOUR),
    "c-10": (10, 45_000, _COLOUR),
    "c-20": (20, 45_000, _COLOUR),
    "tiny-imagenet": (10, 90_000, _COLOUR),
    "t-10": (10, 90_000, _COLOUR),
    "t-20": (20, 90_000, _COLOUR),
    "imagenet32": (100, 1_000_000, _COLOUR),
    "imagenet32-100": (100, 1_000_000, _COLOUR),
    "i-100": (100, 1_000_000, _COLOUR),
    "fceleba": (10, 4_000, _COLOUR),
    "fc-10": (10, 4_000, _COLOUR),
    "fc-20": (20, 8_000, _COLOUR),
    "femnist": (10, 31_000, _GREY),
    "fe-10": (10, 31_000, _GREY),
    "fe-20": (20, 62_000, _GREY),
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
    return None if size is None else spec.benchmark_options.get("tasks", size[0])


def estimate(plan: Plan) -> Estimate | None:
    """Return how long the runs of a plan take here, all workers busy; None for tasks of unknown size."""
    specs = list(plan.work().values())
    if any(spec.benchmark not in SIZES for spec in specs):
        return None
    known: dict[str, float] = {}
    with suppress(OSError, ValueError):
        known = json.loads(_cache().read_text())
    low = high = 0.0
    for spec in specs:
        if METHODS[spec.method].trains:
            least, most = _sample_epochs(spec)
            seconds = _seconds(spec, known)
            low, high = low + least * seconds, high + most * seconds
    workers = default_workers(specs[0].device)
    cuda = specs[0].device.startswith("cuda")
    noun = ("GPU" if cuda else "core") + ("" if workers == 1 else "s")
    return Estimate(low / workers / 3600, high / workers / 3600, f"{workers} {noun}")


def _sample_epochs(spec: Spec) -> tuple[float, float]:
    """Return samples × epochs that a run goes through, at least and at most.

    Where the phases of a task may together take k times the epochs allowed, both figures count k times.
    """
    tasks, samples, _ = SIZES[spec.benchmark]
    count = spec.benchmark_options.get("tasks", tasks)
    if spec.benchmark == "mixture":
        count -= len(names_in(spec.benchmark_options["without"] or ()))
    divided = not spec.benchmark.startswith(("permuted", "mixture"))  # there a task is as large in any number
    each = samples / (count if divided else tasks)
    method = spec.new_method()
    drops = ceil(log(method.lr / method.lr_min, method.lr_factor)) if method.lr_factor > 1 and method.lr_min > 0 else 1
    shortest = min(spec.epochs, 1 + method.lr_patience * max(1, drops))
    most = 0.0
    for task in range(count):
        method.task = task  # by which some methods choose their phases
        again = method.remembered() * task if method.needs_old_data else 0.0
        most += each * (1 + again) * sum(method.phases(spec.epochs))
    return most * shortest / spec.epochs, most


def _seconds(spec: Spec, known: dict[str, float]) -> float:
    """Return how long the network takes to learn a sample: as `known`, else measured and noted, once a machine."""
    shape = SIZES[spec.benchmark][2]
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


def said(hours: float) -> str:
    """Write hours, or minutes where there are few."""
    if hours < 1:
        return f"{max(1, round(60 * hours))} min"
    return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"
