"""From a spec to the things it names: the tasks, the network and the learner."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hatrack.data import benchmarks
from hatrack.data.task import Task
from hatrack.errors import HatrackError
from hatrack.learn.learner import Learner
from hatrack.learn.refusals import refuse_target
from hatrack.learn.seeds import noise
from hatrack.learn.state import PAGE, load
from hatrack.nets import make
from hatrack.runs.spec import Spec
from hatrack.tree import mapped

SMALL = 1_000_000  # parameters


@dataclass(frozen=True)
class Setup:
    """What a run works with; `learner` stands where its checkpoint left it, if there was one."""

    spec: Spec
    tasks: list[Task]
    learner: Learner


def prepare(spec: Spec, checkpoint: Path | None = None) -> Setup:
    """Build everything `spec` asks for, writing nothing: whatever is wrong with it comes to light here."""
    spec.bring()
    sequence = sequence_of(spec)
    method = spec.new_method()
    for task in sequence:  # else it would come to light when those before it are learned
        refuse_target(method, task.name, task.target)
    net = new_net(spec, mapped(lambda part: tuple(part.shape[1:]), sequence[0].train.first(1)))
    if sum(parameter.numel() for parameter in net.parameters()) < SMALL:
        torch.set_num_threads(1)  # more cost more than they bring, above all on a busy machine
    taken: dict[str, Any] = {"scheduler": spec.scheduler, "features": spec.features}
    if checkpoint is None or not (checkpoint / PAGE).exists():
        settings = spec.model_dump(include={"epochs", "batch_size", "seed", "device", "engine", "precision"})
        return Setup(spec, sequence, Learner(net, method, **taken, **settings))
    learner = load(checkpoint, net, method, device=spec.device, engine=spec.engine, **taken)
    for index, task in enumerate(sequence[: learner.finished]):
        if index not in learner.released:
            learner.remember(task)
    return Setup(spec, sequence, learner)


def sequence_of(spec: Spec) -> list[Task]:
    """Return the spec's tasks."""
    return benchmarks.make(spec.benchmark, seed=spec.seed, data=spec.data, **spec.benchmark_options)


def new_net(spec: Spec, shape: Sequence[int]) -> nn.Module:
    """Return the spec's network for inputs of `shape`, initialised from the seed."""
    with noise(spec.seed, "net", device=torch.device("cpu")), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of empty layers; the check below says it in our words
        try:
            net = make(spec.net, shape, **spec.net_options)
        except HatrackError:
            raise
        except (ValueError, RuntimeError, TypeError) as error:
            raise _cannot(spec, str(error).splitlines()[0]) from None
    if any(parameter.numel() == 0 for parameter in net.parameters()):
        raise _cannot(spec, "a layer would have no unit")
    return net


def _cannot(spec: Spec, why: str) -> HatrackError:
    given = ", ".join(f"{key}={value}" for key, value in spec.net_options.items())
    return HatrackError(f"net {spec.net!r} cannot be built with {given}: {why}.")
