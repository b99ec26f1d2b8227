"""The state of torch's optimisers and schedulers as numbers and texts, which JSON holds exactly, and as tensors.

What is code (functions, modules, other optimisers) is left out: who takes a state up again has made a fresh object, and
its own code fills the gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hatrack.errors import HatrackError

SIMPLE = (bool, int, float, str, type(None))
LATER = "cannot be saved in the middle of a task; save the learner when the task is finished."


def encoded(value: Any, whose: str) -> Any:
    """Return a state as plain data; None in place of code."""
    if isinstance(value, SIMPLE):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): encoded(held, whose) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(held, whose) for held in value]
    if isinstance(value, Optimizer | nn.Module) or callable(value):
        return None
    raise HatrackError(f"{whose} keeps a {type(value).__name__}, which {LATER}")


def filled(fresh: Any, saved: Any) -> Any:
    """Return what was `encoded` in the form that a fresh state has."""
    if saved is None and (callable(fresh) or isinstance(fresh, Optimizer)):
        return fresh
    if isinstance(fresh, Tensor):
        return torch.tensor(saved, dtype=fresh.dtype, device=fresh.device)
    if isinstance(fresh, Mapping) and isinstance(saved, Mapping):
        named = {str(key): key for key in fresh}
        made: Any = copy(fresh)
        for key, held in saved.items():  # one by one: a Counter's update adds
            made[named.get(key, key)] = filled(fresh.get(named.get(key)), held)
        return made
    if isinstance(fresh, list | tuple) and isinstance(saved, list):
        known = [*fresh, *[None] * (len(saved) - len(fresh))]
        return type(fresh)([filled(old, held) for old, held in zip(known, saved, strict=False)])
    return saved


def numbers_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state of an optimiser that is not tensors."""
    held = optimizer.state_dict()
    name = type(optimizer).__name__
    plain = {
        str(i): {k: v for k, v in entry.items() if not isinstance(v, Tensor)} for i, entry in held["state"].items()
    }
    if any(not isinstance(v, SIMPLE) for entry in plain.values() for v in entry.values()):
        raise HatrackError(f"{name} keeps what {LATER}")
    groups = [{k: float(v) if isinstance(v, Tensor) else v for k, v in g.items()} for g in held["param_groups"]]
    return {"name": name, "groups": groups, "state": plain}


def tensors_of(optimizer: Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return the tensors among the state of an optimiser, as <prefix>/<number of the parameter>/<name>."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}/{i}/{k}": v for i, entry in state.items() for k, v in entry.items() if isinstance(v, Tensor)}


def restore(optimizer: Optimizer, numbers: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Take back what the two returned."""
    state: dict[int, dict[str, Any]] = {int(i): dict(entry) for i, entry in numbers["state"].items()}
    for key, tensor in tensors.items():
        if key.startswith(f"{prefix}/"):
            _, i, name = key.split("/", 2)
            state.setdefault(int(i), {})[name] = tensor.clone()  # the optimiser writes into it
    groups: list[dict[str, Any]] = [
        {k: tuple(v) if k == "betas" else v for k, v in g.items()} for g in numbers["groups"]
    ]
    for group, fresh in zip(groups, optimizer.param_groups, strict=True):
        if "capturable" in group:  # decided by this machine's engine, not by the one that it was saved under
            group["capturable"] = fresh["capturable"]
        for key, value in fresh.items():
            if isinstance(value, Tensor) and key in group:
                group[key] = torch.full_like(value, group[key])
    optimizer.load_state_dict({"state": state, "param_groups": groups})
