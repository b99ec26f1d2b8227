"""SPG's importance of single parameters, from gradients. Konishi et al. 2023, Eqs. 1 to 3.

    γ^{t,τ} = |tanh(Norm(∂L_{t,τ}/∂θ_i))| for every parameter tensor θ_i,  Norm(x) = (x − mean x)/std x
    L_{t,τ} = cross-entropy of task t's samples for τ = t; the sum of head τ's logits on them for τ < t (cross-head
              importance, CHI)
    γ^t     = max over τ ≤ t, entry by entry

The gradient is that of the loss over all samples (a sum), so it does not depend on the batch size; the published code
adds up batch means, which weighs the samples of a smaller last batch higher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.nets.model import Model

IMPORTANCE_BATCH = 64


def gradient_importance(
    model: Model, task: int, parameters: Mapping[str, Tensor], feed: Feed, chi: bool = True
) -> dict[str, Tensor]:
    """Return γ^t of `parameters` by the samples in `feed`, with the network in the mode in which it is."""
    own = own_importance(model, task, parameters, feed)
    crossed = crossed_importance(model, task, parameters, feed) if chi else None
    return own if crossed is None else larger(own, crossed)


def own_importance(model: Model, task: int, parameters: Mapping[str, Tensor], feed: Feed) -> dict[str, Tensor]:
    """Return γ^{t,t}: by the task's own loss."""
    return normalised(summed_gradients(_own_loss(model, task), parameters, feed))


def crossed_importance(
    model: Model, task: int, parameters: Mapping[str, Tensor], feed: Feed
) -> dict[str, Tensor] | None:
    """Return the largest γ^{t,τ} over the heads τ < t, entry by entry; None for the first task."""
    highest: dict[str, Tensor] | None = None
    for earlier in range(task):
        crossed = normalised(summed_gradients(_logit_sum(model, earlier), parameters, feed))
        highest = crossed if highest is None else larger(highest, crossed)
    return highest


def _own_loss(model: Model, task: int) -> Callable[[Batch], Tensor]:
    return lambda batch: model.targets[task].trained(model.logits(batch.x, task), batch.y) * len(batch.y)


def _logit_sum(model: Model, task: int) -> Callable[[Batch], Tensor]:
    return lambda batch: model.logits(batch.x, task).sum()


def summed_gradients(
    loss: Callable[[Batch], Tensor], parameters: Mapping[str, Tensor], feed: Feed, size: int = IMPORTANCE_BATCH
) -> dict[str, Tensor]:
    """Σ_b dL_b/dθ over all mini-batches b."""
    tensors = list(parameters.values())
    total = [torch.zeros_like(t) for t in tensors]
    for batch in feed.batches(size):
        gradients = torch.autograd.grad(loss(batch), tensors, allow_unused=True)
        for sum_, gradient in zip(total, gradients, strict=True):
            if gradient is not None:
                sum_.add_(gradient)
    return dict(zip(parameters, total, strict=True))


def normalised(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """|tanh((x − mean)/std)| for each tensor by itself, std unbiased; a tensor of equal values gives zeros."""
    return {name: _normalised(x) for name, x in values.items()}


def _normalised(x: Tensor) -> Tensor:
    centred = x - x.mean()
    std = (centred.square().sum() / max(x.numel() - 1, 1)).sqrt()
    # equal values leave only rounding in `centred`, which the division would blow up to any size
    differ = x.amax() > x.amin()
    return torch.where(differ, torch.tanh(centred / torch.where(std > 0, std, 1.0)), 0.0).abs()


def larger(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the entry-wise maximum by name."""
    return {name: torch.maximum(value, b[name]) for name, value in a.items()}
