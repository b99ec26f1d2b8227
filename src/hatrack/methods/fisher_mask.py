"""Fisher masks: the entries with the largest Fisher information are frozen. MINT Lab, "A step further from EWC".

    after task t  F^t = EWC's Fisher diagonal (fisher.py); M^t = the `share` of all entries with the largest F^t,
                  taken from every parameter tensor alike (layer-wise), or from all of them together (global)
                  M^{≤t} = M^t ∪ M^{≤t−1}; without `union` M^t alone
    neurons       F^t summed over the row that a neuron has in each tensor of its layer; its rows are frozen as one
    training      g ← 0 where M^{≤t−1}, g as it is elsewhere; loss + l1·Σ|θ| over the weights on request

Layer-wise by default: the source finds importances that differ by 1e5 between layers, so that a global threshold
freezes some layers and leaves others free. It takes the mask of the last task alone and sees old tasks lost; the
union over tasks is the remedy. It speaks of parameters and of neurons, and masks "element-wisely": single entries are
the default here. L1, which it proposes, makes weights vanish that later tasks can then use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hatrack.data.feed import Batch, Feed
from hatrack.masks.unitmap import layer_of
from hatrack.measure.histogram import LogHistogram, log_histogram
from hatrack.methods.hyper import hyper
from hatrack.methods.parts.fisher import fisher_diagonal
from hatrack.methods.parts.gradient_mask import GradientMask
from hatrack.nets.model import Model


@dataclass
class FisherMask(GradientMask):
    """Freeze the entries that matter most by Fisher information, for good."""

    name: ClassVar[str] = "fisher-mask"
    family: ClassVar[str] = "soft masks"
    source: ClassVar[str] = "MINT Lab (Fisher masks)"
    summary: ClassVar[str] = "the weights with the largest Fisher information are frozen"
    stores: ClassVar[str] = "P bytes in all: what is frozen"

    share: float = hyper(
        0.9, "share of the entries that a task freezes", low=0.0, high=1.0, search=(0.5, 0.99, "linear")
    )
    layerwise: bool = hyper(True, "freeze that share of every parameter tensor, not of all entries together")
    neurons: bool = hyper(False, "freeze neurons as a whole (rows of weights, with their biases), not single entries")
    union: bool = hyper(True, "keep frozen what any task froze; off, what the last one froze alone, as the source does")
    l1: float = hyper(0.0, "weight of Σ|θ| over the network's weights: makes more of them free", low=0.0)

    def attach(self, model: Model) -> None:
        super().attach(model)
        self._histograms: dict[str, LogHistogram] = {}

    def penalty(self) -> Tensor | None:
        penalty = super().penalty()
        if not self.l1:
            return penalty
        sizes = torch._foreach_norm([p for p in self.shared().values() if p.ndim > 1], 1)
        size = self.l1 * torch.stack(list(sizes)).sum()
        return size if penalty is None else penalty + size

    def fisher(self, feed: Feed) -> dict[str, Tensor]:
        """F^t of the task's own loss, without the terms that the method adds to it."""
        self.model.net.eval()

        def loss(batch: Batch) -> Tensor:
            return self.penalised(self.task_loss(self.forward(batch.x), batch))

        return fisher_diagonal(loss, self.shared(), feed)

    def amounts(self) -> dict[str, Tensor]:
        return {name: mask.float() for name, mask in self.importance.items()}

    def end_task(self, feed: Feed) -> None:
        self.freeze(self.fisher(feed))

    def freeze(self, significance: Mapping[str, Tensor]) -> None:
        """Mark what is frozen from now on."""
        self._histograms = {layer: log_histogram(values) for layer, values in self._ranked(significance).items()}
        mark = largest_rows if self.neurons else largest
        marked = mark(significance, self.share, self.layerwise)
        if self.union:
            self.accumulate(marked)
        else:
            self.importance = marked

    def _ranked(self, significance: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return, layer by layer, what is compared: the significance of entries or of neurons."""
        layers: dict[str, list[Tensor]] = {}
        for name, values in (neuron_sums(significance) if self.neurons else significance).items():
            layers.setdefault(name.rpartition("/" if self.neurons else ".")[0], []).append(values.flatten())
        return {layer: torch.cat(values) for layer, values in layers.items()}

    def histograms(self) -> Mapping[str, LogHistogram]:
        return self._histograms


def largest_rows(values: Mapping[str, Tensor], share: float, layerwise: bool) -> dict[str, Tensor]:
    """Mark the rows of the `share` of neurons with the largest sums over all tensors of their layer."""
    marked = largest(neuron_sums(values), share, layerwise)
    rows = {name: marked[_place(name, value)] for name, value in values.items()}
    return {name: rows[name].view(-1, *[1] * (v.ndim - 1)).expand_as(v).contiguous() for name, v in values.items()}


def neuron_sums(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the sum over all that a neuron has in the tensors of its layer."""
    neurons: dict[str, Tensor] = {}
    for name, value in values.items():
        sums = value.flatten(1).sum(1) if value.ndim > 1 else value
        place = _place(name, value)
        neurons[place] = neurons[place] + sums if place in neurons else sums
    return neurons


def _place(name: str, value: Tensor) -> str:
    """Name the neurons that a tensor has a row each for: those of its layer, by their number."""
    return f"{layer_of(name)}/{len(value)}"


def largest(values: Mapping[str, Tensor], share: float, layerwise: bool) -> dict[str, Tensor]:
    """Mark the `share` of entries with the largest values, of each tensor or of all together."""
    if layerwise:
        return {name: _largest(value.flatten(), share).view_as(value) for name, value in values.items()}
    marked = _largest(torch.cat([value.flatten() for value in values.values()]), share)
    parts = marked.split([value.numel() for value in values.values()])
    return {name: part.view_as(value) for (name, value), part in zip(values.items(), parts, strict=True)}


def _largest(flat: Tensor, share: float) -> Tensor:
    """Mark exactly round(share·n) entries: of equal values, the first ones."""
    order = flat.argsort(descending=True, stable=True)
    return torch.zeros_like(flat, dtype=torch.bool).index_fill_(0, order[: round(share * flat.numel())], True)
