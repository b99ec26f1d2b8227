"""Digests of all that a finished task is answered from besides the entries that tasks share (LockedValues).

    head/…     its head                            frozen/…   parameters that nobody trains
    own/…      parameters it keeps for itself      method/…   what the method left for it: gates, masks, laterals
    buffer/…   buffers, its own or the network's   which/…    by what its samples are known when nobody names it
    inputs     how its inputs are prepared, and what it predicts

They are taken once, when the task ends; where a method promises that finished tasks cannot change, they must stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any, Protocol

import torch
from torch import Tensor

from hatrack.data.inputs import Inputs
from hatrack.learn.which.statistics import Statistics
from hatrack.methods.base import Method
from hatrack.targets import Target
from hatrack.tree import named

Seal = Mapping[str, str]
INPUTS = "inputs"


def fingerprint(tensor: Any) -> str:
    """Return the SHA-256 of a tensor's type, shape and bits, which are the same on every device; of several by name."""
    if not isinstance(tensor, Tensor):
        each = [[name, fingerprint(part)] for name, part in named(tensor).items()]
        return sha256(json.dumps(each).encode()).hexdigest()
    flat = tensor.detach().cpu().contiguous().flatten()
    kind = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    return sha256(kind + (flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")).hexdigest()


class Finished(Protocol):
    """What is known of a finished task."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Target: ...
    @property
    def inputs(self) -> Inputs: ...
    @property
    def which(self) -> Statistics | None: ...


def parts(method: Method, task: int, about: Finished) -> dict[str, Tensor]:
    """Return what a finished task may be answered from, and any parameter that is not its own as if it were frozen."""
    model, own = method.model.at(task), method.model.private[task]
    buffers = model.buffers()
    return {
        **{f"head/{n}": p for n, p in model.heads[task].named_parameters()},
        **{f"own/{n}": t for n, t in own.items() if n not in buffers},
        **{f"copy/{n}": t for n, t in model.copies.get(task, {}).items() if n not in buffers},
        **{f"buffer/{n}": model.own(task).get(n, b) for n, b in buffers.items()},
        **{f"frozen/{n}": p for n, p in model.net.named_parameters() if n not in own},
        **{f"method/{n}": t for n, t in method.sealed(task).items()},
        **{f"which/{n}": t for n, t in (about.which.tensors() if about.which else {}).items()},
    }


def seal(method: Method, task: int, about: Finished, answer: Callable[[], None]) -> Seal:
    """Return the digests of a task that has just ended; empty where nothing is promised.

    Buffers that are moved by answering itself (a counter of calls) are left out: see `answer`, which answers.
    """
    if not method.promises():
        answer()
        return {}
    before = {name: fingerprint(t) for name, t in parts(method, task, about).items() if name.startswith("buffer/")}
    answer()
    elsewhere = {f"frozen/{name}" for name in (*method.model.parameters(), *(method.use(task) or ()))}
    taken = {name: fingerprint(t) for name, t in parts(method, task, about).items() if name not in elsewhere}
    still = {name: digest for name, digest in taken.items() if before.get(name, digest) == digest}
    return {**still, INPUTS: _prepared(about.inputs, about.target)}


def broken(seal: Seal, method: Method, task: int, about: Finished) -> tuple[list[str], list[Tensor]]:
    """Return what no longer is what it was, in order, and the tensors that were compared."""
    now = parts(method, task, about)
    compared = [now[name] for name in seal if name in now]
    digests = {name: fingerprint(now[name]) for name in seal if name in now} | {
        INPUTS: _prepared(about.inputs, about.target)
    }
    odd = [name for name, then in seal.items() if digests.get(name) != then]
    return odd + [name for name in now if name.startswith("own/") and name not in seal], compared


def _prepared(inputs: Inputs, target: Target) -> str:
    return sha256(json.dumps([asdict(inputs), target.described()]).encode()).hexdigest()
