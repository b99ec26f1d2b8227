"""Gates on single weights: vectors as long as the network, gone through in stretches that fit a core's cache.

    a = σ(s·e), 0 below CLOSED (see gates.py);  W ⊙ a and R = Σ a·p
    ∂W = ∂(W ⊙ a) ⊙ a,  ∂e = s·a·(1 − a)·[∂(W ⊙ a) ⊙ W + p·∂R]

The same as one operation after the other, which spend their time in fetching vectors that the last one has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hatrack.masks.gates import CLOSED, in_cache


def gated_entries(
    embedding: Tensor, s: Tensor, prices: Tensor, weights: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return R, and W ⊙ a by name; embedding and prices are those of all weights in a row."""
    total, *products = _Gated.apply(embedding, s, prices, *weights.values())  # type: ignore[no-untyped-call]
    return total, dict(zip(weights, products, strict=True))


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embedding: Tensor, s: Tensor, prices: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        gates = torch.empty_like(embedding)
        total = embedding.new_zeros(())
        for a, e, p in zip(in_cache(gates), in_cache(embedding), in_cache(prices), strict=True):
            torch.threshold_(torch.mul(e, s, out=a).sigmoid_(), CLOSED, 0.0)
            total += torch.dot(a, p)
        ctx.save_for_backward(gates, s, prices, *weights)
        parts = gates.split([w.numel() for w in weights])
        return total, *(w * a.view_as(w) for w, a in zip(weights, parts, strict=True))

    @staticmethod
    def backward(ctx: Any, *arriving: Tensor) -> tuple[Tensor | None, ...]:
        gates, s, prices, *weights = ctx.saved_tensors
        total, *products = arriving
        sizes = [w.numel() for w in weights]
        found = torch.empty_like(gates)
        for_weights = [torch.empty_like(w, memory_format=torch.contiguous_format) for w in weights]
        rows = (part.split(sizes) for part in (found, gates, prices))
        for w, to_w, g, *parts in zip(weights, for_weights, products, *rows, strict=True):
            flat = (part.reshape(-1) for part in (to_w, w, g))
            for q, a, p, to_weight, weight, g_cut in zip(*map(in_cache, (*parts, *flat)), strict=True):
                torch.mul(g_cut, a, out=to_weight)
                torch.mul(g_cut, weight, out=q).addcmul_(p, total)
                if q.device.type == "cpu":
                    _by_slope(q, a, s)
        if found.device.type != "cpu":  # one operation over everything is best there
            _by_slope(found, gates, s)
        return found, None, None, *for_weights


def _by_slope(q: Tensor, gates: Tensor, s: Tensor) -> None:
    """q ← q·s·a·(1 − a)."""
    q.mul_(torch.addcmul(gates, gates, gates, value=-1)).mul_(s)
