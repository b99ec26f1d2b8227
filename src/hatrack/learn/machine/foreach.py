"""Operations on lists, torch._foreach_mul_(gs, ms) and its kind, as one operation for each tensor: g ← g·m.

On a device lists are fast because they are one kernel. A compiler does better with the parts, which it joins to what
comes before and after them; a list stays a kernel of its own, and torch 2.11 fails to compile some steps that hold two.
Handed to the tracer, which asks for every such operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NAMES = ("abs", "add", "addcmul", "clamp_min", "copy", "div", "mul", "neg", "sign", "sqrt", "sub")
BY_NAME = ("alpha", "value")  # factors, which an operation on one tensor takes by name only


def _one_by_one(single: Callable[..., Tensor], names: list[str], keeps: bool) -> Callable[..., list[Tensor] | None]:
    """Return f(as, b, …) that does single(a, b, …) for each a: lists are taken along, what is no list is shared.

    `names`: those of the arguments after the first list.
    """

    def call(first: list[Tensor], *others: Any, **more: Any) -> list[Tensor] | None:
        told = dict(zip(names, others, strict=False))
        more |= {name: told.pop(name) for name in BY_NAME if name in told}
        along = [other if isinstance(other, list) else [other] * len(first) for other in told.values()]
        made = [single(*each, **more) for each in zip(first, *along, strict=True)]
        return made if keeps else None

    return call


def _singles() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for name in NAMES:
        for form, keeps in ((name, True), (f"{name}_", False)):
            single, packet = getattr(torch.ops.aten, form), getattr(torch.ops.aten, f"_foreach_{form}")
            for overload in packet.overloads():
                listed = getattr(packet, overload)
                names = [argument.name for argument in listed._schema.arguments][1:]
                # Left out: results put into given tensors, and a factor for each tensor; nobody here asks for them.
                if "out" not in names and names[1:] != ["tensor2", "scalars"]:
                    found[listed] = _one_by_one(single, names, keeps)
    return found


FOREACH = _singles()
