"""The diagonal of the Fisher information, which EWC and its kin build on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed

FISHER_BATCH = 20


def fisher_diagonal(
    loss: Callable[[Batch], Tensor], parameters: Mapping[str, Tensor], feed: Feed, size: int = FISHER_BATCH
) -> dict[str, Tensor]:
    """F = Σ_b |b|·(dL_b/dθ)² / N over mini-batches b, L_b their mean loss.

    Batches of 20 are what HAT's baselines used, and what their λ is tuned to; batches of 1 give the empirical Fisher
    information sample by sample.
    """
    names, tensors = list(parameters), list(parameters.values())
    total = [torch.zeros_like(t) for t in tensors]
    for batch in feed.batches(size):
        gradients = torch.autograd.grad(loss(batch), tensors, allow_unused=True)
        for sum_, g in zip(total, gradients, strict=True):
            if g is not None:
                sum_.addcmul_(g, g, value=len(batch.y))
    return {name: t / len(feed) for name, t in zip(names, total, strict=True)}
