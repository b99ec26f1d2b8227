"""Knowledge-transfer attention: one task's query looks at the features that other tasks compute.

    a = softmax( (q W_q)·(h_j W_k) / √d_k ) over tasks j, head by head;  logits = [Σ_j a_j (h_j W_v)] W_o W_y + b

One layer of multi-head attention with a single query, read by a linear head.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention


def new_attention(width: int, classes: int, heads: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the starting values: Xavier uniform weights, a normal query."""
    inner = max(1, width // heads) * heads
    shapes = {"queries": (inner, width), "keys": (inner, width), "values": (inner, width), "out": (width, inner)}
    made = {name: xavier(shape, generator) for name, shape in shapes.items()}
    made["query"] = torch.randn(width, generator=generator)
    made["weight"], made["bias"] = xavier((classes, width), generator), torch.zeros(classes)
    return made


def attend(attention: Mapping[str, Tensor], features: Tensor, heads: int) -> Tensor:
    """Return logits from the features (batch, tasks, width) of several tasks."""

    def split(x: Tensor) -> Tensor:  # (batch, places, inner) → (batch, heads, places, inner/heads)
        return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)

    query = linear(attention["query"], attention["queries"]).expand(len(features), 1, -1)
    keys, values = linear(features, attention["keys"]), linear(features, attention["values"])
    query, keys, values = (split(x.to(keys.dtype)) for x in (query, keys, values))
    mixed = scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(1)
    return linear(linear(mixed, attention["out"]), attention["weight"], attention["bias"])


def xavier(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return a matrix of Xavier uniform values."""
    bound = (6 / sum(shape)) ** 0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
