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


def _one_by_one(single: Callable[..., Tensor], keeps: bool) -> Callable[..., list[Tensor] | None]:
    """Return f(as, b, …) that does single(a, b, …) for each a: lists are taken along, what is no list is shared."""

    def call(first: list[Tensor], *others: Any, **more: Any) -> list[Tensor] | None:
        along = [other if isinstance(other, list) else [other] * len(first) for other in others]
        made = [single(*each, **more) for each in zip(first, *along, strict=True)]
        return made if keeps else None

    return call


def _singles() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for name in NAMES:
        for form, keeps in ((name, True), (f"{name}_", False)):
            single, packet = getattr(torch.ops.aten, form), getattr(torch.ops.aten, f"_foreach_{form}")
            for overload in packet.overloads():
                if not overload.endswith("out"):
                    found[getattr(packet, overload)] = _one_by_one(single, keeps)
    return found


SINGLES = _singles()
