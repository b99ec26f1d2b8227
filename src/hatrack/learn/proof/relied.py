"""Which entries of the shared tensors a finished task is answered from, in few bytes that need no torch to be read.

    "all", "none"          every entry of the tensor, or none
    ["axes", name, at]     where one boolean vector an axis is true in all axes: an outer product
    ["bits", name, at]     one bit an entry
    ["upto", name, n]      where a tensor of numbers, of the same shape, holds 1 to n

`name` is a tensor in the file; bits are packed eight to a byte, the first in the highest, and begin at bit `at`. A
tensor of the network that has no form counts as a whole. HAT's units make outer products; where the method's own state
says already which entries these are, it is pointed to and nothing is stored again. Of a method that says nothing of
entries, all that it has counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hatrack.methods.base import Method

Bits = Any  # an array of booleans


@dataclass(frozen=True)
class Relied:
    """What a finished task is answered from besides its head and its own tensors.

    forms    which entries, by tensor of the network; `bits`: the packed ones
    state    what of the method's state, by name
    earlier  the tasks whose own tensors it is answered with, too
    """

    forms: Mapping[str, Any]
    bits: Tensor
    state: tuple[str, ...]
    earlier: tuple[int, ...]

    def described(self) -> dict[str, Any]:
        """Return all but the bits in JSON values."""
        return {"entries": dict(self.forms), "state": list(self.state), "earlier": list(self.earlier)}


def restored(told: Mapping[str, Any], bits: Tensor) -> Relied:
    """Return what `described` told of."""
    return Relied(told["entries"], bits, tuple(told["state"]), tuple(told["earlier"]))


def relied_on(method: Method, task: int, seal: Mapping[str, str] | None) -> Relied:
    """Return what a finished task is answered from; `seal` tells which buffers are moved by answering itself."""
    use, state = method.use(task), method.state()
    if use is None:
        return Relied({}, torch.zeros(0, dtype=torch.uint8), tuple(state), tuple(range(task)))
    earlier = tuple(method.built_on(task))
    named = tuple(n for t in (*earlier, task) for n in method.sealed(t) if n in state)
    model, place, known = method.model, bits_of(task), method.use_in_state(task)
    free = [name for name in model.parameters() if name not in use and name not in model.private[task]]
    moving = [name for name in model.buffers() if seal and f"buffer/{name}" not in seal]
    forms: dict[str, Any] = dict.fromkeys([*free, *moving], "none")
    vectors: list[Bits] = []
    for name, amount in use.items():
        if name in known:
            kind, where, number = known[name]
            forms[name] = [kind, f"method/{where}", number]
            continue
        kind, found = _packed((amount > 0).cpu().numpy())
        forms[name] = [kind, place, sum(map(len, vectors))] if found else kind
        vectors += found
    flat = np.packbits(np.concatenate(vectors)) if vectors else np.zeros(0, dtype=np.uint8)
    return Relied(forms, torch.from_numpy(flat), named, earlier)


def bits_of(task: int) -> str:
    """Return the name in the file under which a task's bits are stored."""
    return f"use/{task}"


def _packed(mask: Bits) -> tuple[str, list[Bits]]:
    """Return the form of a mask, and its vectors."""
    count = int(mask.sum())
    if count in (0, mask.size):
        return ("all" if count else "none"), []
    axes = [mask.any(tuple(other for other in range(mask.ndim) if other != axis)) for axis in range(mask.ndim)]
    if int(np.prod([int(axis.sum()) for axis in axes])) == count:
        return "axes", axes
    return "bits", [mask.flatten()]
