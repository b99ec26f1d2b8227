"""Gates on single weights: vectors as long as the network, gone through in stretches that fit a core's cache.

    a = σ(s·e), 0 below CLOSED (see gates.py),  ∂e = s·a·(1 − a)·∂a
    W ⊙ a and R = Σ a·p,  ∂W = ∂(W ⊙ a) ⊙ a,  ∂a = ∂(W ⊙ a) ⊙ W + p·∂R

The same as one operation after the other, which spend their time in fetching vectors that the last one has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hatrack.masks.gates import CLOSED, in_cache


def gate_entries(embedding: Tensor, s: Tensor) -> Tensor:
    """Return a."""
    gates: Tensor = _Gates.apply(embedding, s)  # type: ignore[no-untyped-call]
    return gates


def gated(gates: Tensor, prices: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return R, and W ⊙ a by name; the gates are those of all weights in a row."""
    total, *products = _Gated.apply(gates, prices, *weights.values())  # type: ignore[no-untyped-call]
    return total, dict(zip(weights, products, strict=True))


class _Gates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedding: Tensor, s: Tensor) -> Tensor:
        gates = torch.empty_like(embedding)
        for a, e in zip(in_cache(gates), in_cache(embedding), strict=True):
            torch.threshold_(torch.mul(e, s, out=a).sigmoid_(), CLOSED, 0.0)
        ctx.save_for_backward(gates, s)
        return gates

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor) -> tuple[Tensor | None, ...]:
        gates, s = ctx.saved_tensors
        found = torch.empty_like(gates)
        for q, a, g in zip(in_cache(found), in_cache(gates), in_cache(arriving[0]), strict=True):
            torch.addcmul(a, a, a, value=-1, out=q).mul_(g).mul_(s)
        return found, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, prices: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(gates, prices, *weights)
        parts = gates.split([w.numel() for w in weights])
        return torch.dot(gates, prices), *(w * a.view_as(w) for w, a in zip(weights, parts, strict=True))

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor) -> tuple[Tensor | None, ...]:
        gates, prices, *weights = ctx.saved_tensors
        total, *products = arriving
        sizes = [w.numel() for w in weights]
        found = torch.empty_like(gates)
        for_weights = []
        rows = (part.split(sizes) for part in (found, gates, prices))
        for w, g, q, a, p in zip(weights, products, *rows, strict=True):
            for_weights.append(torch.empty_like(w))
            flat = (part.reshape(-1) for part in (for_weights[-1], w, g))
            for cut in zip(*(in_cache(part) for part in (q, a, p, *flat)), strict=True):
                to_gate, gate, price, to_weight, weight, g_cut = cut
                torch.mul(g_cut, weight, out=to_gate).addcmul_(price, total)
                torch.mul(g_cut, gate, out=to_weight)
        return found, None, *for_weights
