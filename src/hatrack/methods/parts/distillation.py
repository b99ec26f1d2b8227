"""Learning from the network as it was: a frozen teacher."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hatrack.methods.parts.declared import Part, kept
from hatrack.modes import evaluating
from hatrack.nets.model import Model


@dataclass(init=False, eq=False)
class Teacher(Part):
    """The network and heads as they were when it last learned, in evaluation mode."""

    values: dict[str, Tensor] = kept("")

    def __init__(self, model: Model) -> None:
        super().__init__()
        self._model = model

    def learn(self, heads: int = 0) -> None:
        """Copy the network as it is, and the first so many heads."""
        now = {f"net/{name}": tensor for name, tensor in self._model.tensors().items()}
        for t, head in enumerate(self._model.heads[:heads]):
            now |= {f"head/{t}/{name}": p for name, p in head.named_parameters()}
        self.values = {name: tensor.detach().clone() for name, tensor in now.items()}

    @torch.no_grad()
    def features(self, x: Tensor, task: int) -> Tensor:
        """Return the features of a batch."""
        net = {name.removeprefix("net/"): t for name, t in self.values.items() if name.startswith("net/")}
        with evaluating(self._model.net):
            return self._model.features(x, task, weights=net)

    @torch.no_grad()
    def logits(self, x: Tensor, task: int) -> list[Tensor]:
        """Return the logits of every head, for a batch of this task."""
        features, then = self.features(x, task), self.values
        heads = range(sum(name.startswith("head/") for name in then) // 2)
        return [
            self._model.heads[t].computed(features, then[f"head/{t}/weight"], then[f"head/{t}/bias"]) for t in heads
        ]
