"""The common ground, written once by hatrack as .npz: arrays, first weights, and the order of all batches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import CLASSES, TASKS, WIDTHS, Budget
from torch import nn

import hatrack
from hatrack.data.samples import Split
from hatrack.data.task import Task
from hatrack.learn.seeds import generator, noise
from hatrack.nets import build
from hatrack.nets.model import Model
from hatrack.targets import Classification

PHASES = 2  # PackNet trains, prunes and trains again; every phase has its own order of batches


def first_net(shape: tuple[int, ...], seed: int) -> nn.Module:
    """Return the network as it is before the first task; no dropout, so that both sides compute the same."""
    with noise(seed, "net", device=torch.device("cpu")):
        return build("mlp", shape, widths=WIDTHS, dropout=0.0, input_dropout=0.0)


def export(folder: Path, seed: int, budget: Budget, data: str | os.PathLike[str] | None) -> Path:
    """Write the tasks of a seed, unless they are there, and return the file."""
    path = budget.tasks_file(folder, seed)
    if path.exists():
        return path
    arrays: dict[str, Any] = {}
    tasks = hatrack.tasks("split-mnist", seed=seed, data=data)
    assert len(tasks) == TASKS
    assert all(task.classes == CLASSES for task in tasks)
    for t, task in enumerate(tasks):
        assert task.valid is not None
        assert task.test is not None
        count = min(budget.train, len(task.train))
        rows = np.sort(np.random.default_rng([seed, t]).permutation(len(task.train))[:count])
        for part, split in (
            ("train", task.train.take(torch.from_numpy(rows))),
            ("valid", task.valid),
            ("test", task.test),
        ):
            arrays[f"{part}/x/{t}"], arrays[f"{part}/y/{t}"] = prepared(task, split)
        for phase in range(PHASES):
            orders = [shuffled(seed, t, phase, epoch, count) for epoch in range(1, budget.epochs + 1)]
            arrays[f"order/{phase}/{t}"] = np.stack(orders)
    arrays |= first_weights(torch.from_numpy(arrays["train/x/0"][:1]), seed)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(path.with_suffix(".part.npz"), **arrays)
    path.with_suffix(".part.npz").replace(path)
    return path


def prepared(task: Task, split: Split) -> tuple[Any, Any]:
    """Return inputs as the network sees them, and labels."""
    x, y = split.on(torch.device("cpu"))
    return task.inputs.on(x.device)(x).numpy(), y.numpy()


def shuffled(seed: int, task: int, phase: int, epoch: int, count: int) -> Any:
    """Return the order in which hatrack's learner goes through the samples in that epoch."""
    return torch.randperm(count, generator=generator(seed, "shuffle", task, phase, epoch)).numpy()


def first_weights(example: torch.Tensor, seed: int) -> dict[str, Any]:
    """Return the weights of the network and of every task's head before they are trained, by name."""
    model = Model(first_net(tuple(example.shape[1:]), seed), torch.device("cpu"))
    model.meet(example)
    weights = {f"net/{name}": p.detach().numpy() for name, p in model.parameters().items()}
    for t in range(TASKS):
        model.add_task(Classification(CLASSES), generator(seed, "head", t))
        weights |= {f"head/{t}/{name}": p.detach().numpy() for name, p in model.heads[t].named_parameters()}
    return weights
